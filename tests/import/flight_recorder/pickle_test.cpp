#include "import/flight_recorder/pickle.h"

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

using namespace std::string_literals;
using testing::contains;

const std::string begin = "\x80\x02"s;

Pickle pickle_of(const std::string& operations, std::size_t block = 3) {
    return read_pickle(text_source(begin + operations, block), "file");
}

Json json_of(const std::string& operations) {
    const Pickle pickle = pickle_of(operations);
    return unfolded(pickle, pickle.values[pickle.root], "frames", "file");
}

std::string error_of(const std::string& operations) {
    try {
        json_of(operations);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

std::string text(const std::string& value) {
    return "\x8c"s + static_cast<char>(value.size()) + value;
}

}  // namespace

TEST_CASE("Every kind of data is read as Python's pickletools describes it", "[import]") {
    CHECK(json_of("N.") == nullptr);
    CHECK(json_of("\x88.") == true);
    CHECK(json_of("\x89.") == false);
    CHECK(json_of("K\xff.") == 255);
    CHECK(json_of("M\x01\x02.") == 513);         // 1 + 2 x 256
    CHECK(json_of("J\xfe\xff\xff\xff.") == -2);  // two's complement
    CHECK(json_of("\x8a\x00."s) == 0);
    CHECK(json_of("\x8a\x01\xff.") == -1);  // the top bit is the sign
    CHECK(json_of("\x8a\x02\xff\x00."s) == 255);
    CHECK(json_of("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."s) == INT64_MIN);
    CHECK(json_of("G\x3f\xf8\x00\x00\x00\x00\x00\x00."s) == 1.5);  // big endian
    CHECK(json_of("X\x02\x00\x00\x00hi."s) == "hi");
    CHECK(json_of("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s) == "hi");
    CHECK(json_of(text("hi") + ".") == "hi");
    CHECK(json_of("].") == Json::array());
    CHECK(json_of(").") == Json::array());
    CHECK(json_of("}.") == Json::object());
    CHECK(json_of("]K\x01"
                  "aK\x02"
                  "a.") == Json{1, 2});
    CHECK(json_of("](K\x01K\x02"
                  "e.") == Json{1, 2});
    CHECK(json_of("(K\x01K\x02t.") == Json{1, 2});
    CHECK(json_of("K\x01\x85.") == Json::array({1}));
    CHECK(json_of("K\x01K\x02\x86.") == Json{1, 2});
    CHECK(json_of("K\x01K\x02K\x03\x87.") == Json{1, 2, 3});
    CHECK(json_of("}" + text("a") + "K\x01s.") == Json{{"a", 1}});
    CHECK(json_of("}(" + text("a") + "K\x01" + text("b") + "Nu.") ==
          Json{{"a", 1}, {"b", nullptr}});
}

TEST_CASE("What was remembered is the same again", "[import]") {
    CHECK(json_of("]q\x05K\x01"
                  "ah\x05\x86.") == Json{{1}, {1}});
    CHECK(json_of("]r\x00\x01\x00\x00"
                  "j\x00\x01\x00\x00\x86."s) == Json{Json::array(), Json::array()});
    // Frames, and MEMOIZE, are of protocol 4.
    const Pickle pickle = read_pickle(
        text_source("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x07\x94h\x00\x86."s), "file");
    CHECK(unfolded(pickle, pickle.values[pickle.root], "", "file") == Json{7, 7});
}

TEST_CASE("Functions that only say a type are passed over, all others are refused by name",
          "[import]") {
    CHECK(json_of("ctorch.jit._pickle\nrestore_type_tag\nq\x09](K\x01"
                  "e" +
                  text("List[int]") + "\x86R.") == Json::array({1}));
    CHECK(json_of("ctorch.jit._pickle\nbuild_intlist\n(](K\x01K\x02"
                  "etR.") == Json{1, 2});
    CHECK(contains(error_of("cposix\nsystem\n" + text("true") + "\x85R."), "GLOBAL posix system"));
    CHECK(contains(error_of("ctorch.jit._pickle\nother\n."), "GLOBAL torch.jit._pickle other"));
    CHECK(contains(error_of("K\x01K\x02\x85R."), "REDUCE"));
    CHECK(contains(error_of("(K\x01i"), "INST"));
    CHECK(contains(error_of("}}b."), "BUILD"));
    CHECK(contains(error_of(")\x81."), "NEWOBJ"));
    CHECK(contains(error_of(text("posix") + text("system") + "\x93."), "STACK_GLOBAL"));
    CHECK(contains(error_of("K\x01Q."), "BINPERSID"));
    CHECK(contains(error_of("\xff."), "0xff"));
    // Nor may the function itself be a value.
    const std::string function = "ctorch.jit._pickle\nrestore_type_tag\n";
    for (const char* use : {".", "\x85.", "K\x01\x86.", "](", "a."}) {
        CHECK_FALSE(error_of("]" + function + use).empty());
    }
    CHECK_FALSE(error_of("](" + function + "e.").empty());
    CHECK_FALSE(error_of(function + "(" + function + "tR.").empty());
}

TEST_CASE("A torn pickle is refused wherever it is cut", "[import]") {
    const std::string whole = "}(" + text("a") +
                              "q\x01](K\x01J\x01\x02\x03\x04"
                              "e" +
                              text("b") + "G12345678u.";
    REQUIRE(error_of(whole).empty());
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        CHECK_FALSE(error_of(whole.substr(0, length)).empty());
    }
    CHECK_THROWS_AS(read_pickle(text_source(""), "file"), InputError);
    CHECK_THROWS_AS(read_pickle(text_source("\x80"), "file"), InputError);
    CHECK_THROWS_AS(read_pickle(text_source("\x80\x09N."), "file"), InputError);
    CHECK_THROWS_AS(read_pickle(text_source("{}"), "file"), InputError);
}

TEST_CASE("A stack that lacks what an operation takes is refused", "[import]") {
    for (const char* operations : {".",
                                   "a.",
                                   "]a.",
                                   "K\x01"
                                   "a.",
                                   "e.",
                                   "K\x01"
                                   "e.",
                                   "]e.",
                                   "(e.",
                                   "s.",
                                   "}K\x01s.",
                                   "u.",
                                   "(u.",
                                   "}(K\x01u.",
                                   "t.",
                                   "\x85.",
                                   "K\x01\x86.",
                                   "q\x01.",
                                   "(q\x01.",
                                   "h\x01.",
                                   "]h\x02"
                                   "a.",
                                   "]K\x01K\x02s.",
                                   "}K\x01"
                                   "a.",
                                   "K\x01(\x85.",
                                   "R.",
                                   "K\x01R."}) {
        CAPTURE(operations);
        CHECK_FALSE(error_of(operations).empty());
    }
}

TEST_CASE("Lengths of what is not there take no memory", "[import]") {
    CHECK(contains(error_of("X\xff\xff\xff\xff"
                            "abc."),
                   "bytes of text"));
    CHECK(contains(error_of("X\xff\xff\xff\x03"
                            "abc."),
                   "end of the file"));  // within the limit
    CHECK(contains(error_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                            "abc."),
                   "bytes of text"));
    CHECK(contains(error_of("\x8a\xff"
                            "abc."),
                   "64 bits"));
}

TEST_CASE("Marks, values, items and what is remembered are bounded", "[import]") {
    CHECK(contains(error_of(std::string(2000, '(')), "marks"));
    CHECK(contains(error_of(std::string(most_pickled_values + 1, 'N')), "values"));
    // Each refers twice to the one before: 2^n items for 4 n bytes were it unfolded at once. Here
    // it is refused when it is.
    std::string laughs = "]q\x01";
    for (int i = 0; i < 40; ++i) {
        laughs += "h\x01\x86q\x01"s;
    }
    CHECK_NOTHROW(pickle_of(laughs + "."));
    CHECK(contains(error_of(laughs + "."), "values in an entry"));
    std::string wide = "](";
    for (std::size_t i = 0; i < 9'000'000; ++i) {
        wide += i == 0 ? "Nq\x01" : "h\x01";
    }
    CHECK_THROWS_AS(read_pickle(text_source(begin + wide, 1 << 16), "file"), InputError);
    std::string remembered = "N";
    for (std::uint32_t i = 0; i <= most_pickled_values; ++i) {
        remembered += 'r';
        for (int byte = 0; byte < 4; ++byte) {
            remembered += static_cast<char>(i >> (8 * byte) & 0xff);
        }
    }
    CHECK_THROWS_AS(read_pickle(text_source(begin + remembered, 1 << 16), "file"), InputError);
}

TEST_CASE("What holds itself, or is nested deep, ends", "[import]") {
    CHECK(contains(error_of("]q\x01h\x01"
                            "a."),
                   "deep"));
    CHECK(contains(error_of("}q\x01" + text("a") + "h\x01s."), "deep"));
    CHECK(contains(error_of(std::string(100'000, ']') + std::string(99'999, 'a') + "."), "deep"));
    // Frames are not looked at, so what they hold does not matter.
    CHECK(json_of("}q\x01" + text("frames") + "h\x01s.") == Json::object());
}

TEST_CASE("Keys that are no text are passed over, and a key that is there twice is its last",
          "[import]") {
    CHECK(json_of("}(K\x01K\x02" + text("a") + "K\x03" + text("a") + "K\x04u.") == Json{{"a", 4}});
}

}  // namespace bucketwise
