#include "sim/text/foreign_text.h"

#include <nlohmann/json.hpp>

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("Nothing that steers a terminal or hides what is written is shown as it is", "[text]") {
    // ESC begins a command; so does U+009B alone, in UTF-8 C2 9B. U+202E turns what follows round.
    CHECK(shown_text("a\x1b[31m") == R"(a\u001b[31m)");
    CHECK(shown_text("a\xc2\x9b"
                     "31m") == R"(a\u009b31m)");
    CHECK(shown_text("a\xe2\x80\xae"
                     "b\xe2\x81\xa6\xd8\x9c\xef\xbb\xbf") == R"(a\u202eb\u2066\u061c\ufeff)");
    // A blank that is none, a word joiner, a deprecated format and, as a pair, a tag.
    CHECK(shown_text("\u200b\u2060\u206e\u00ad\U000E0041") ==
          R"(\u200b\u2060\u206e\u00ad\udb40\udc41)");
    CHECK(shown_text("\x7f\a\b\r\v") == R"(\u007f\u0007\u0008\r\u000b)");
    CHECK(shown_text(std::string_view("\0", 1)) == R"(\u0000)");
}

TEST_CASE("Text in any script stays, and so do lines and tabs where lines are meant", "[text]") {
    const std::string text = "größe, 帯域, مرحبا, 🚀\n\tindented ~ \"quoted\" \\n";
    CHECK(shown_text(text) == text);
    CHECK(shown_line("two\nlines\tand\xe2\x80\xa8more", 100) == R"(two\nlines\tand\u2028more)");
}

TEST_CASE("Bytes that are no UTF-8 are shown by their number", "[text]") {
    // FF is in no character; C0 9B would be ESC and E2 80 is cut; ED A0 80 is half of a pair.
    CHECK(shown_text("\xff.json") == R"(\xff.json)");
    CHECK(shown_text("\xc0\x9b") == R"(\xc0\x9b)");
    CHECK(shown_text("\xe2\x80") == R"(\xe2\x80)");
    CHECK(shown_text("\xed\xa0\x80") == R"(\xed\xa0\x80)");
    CHECK(shown_text("\xf5\x80\x80\x80") == R"(\xf5\x80\x80\x80)");
}

TEST_CASE("What is UTF-8 is told from other bytes", "[text]") {
    for (const char* text : {"", "plain", "größe 帯域 🚀", "\xef\xbf\xbd"}) {
        CHECK(is_utf8(text));
    }
    for (const char* text : {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\x80"}) {
        CHECK_FALSE(is_utf8(text));
    }
}

TEST_CASE("A JSON document that is shown means what it did", "[text]") {
    const nlohmann::json document{{"name\x7f", "a\x1b\xc2\x9b\xe2\x80\xae\n\U000E0041"}};
    const std::string text = document.dump(2);
    CHECK(shown_text(text) != text);
    CHECK(nlohmann::json::parse(shown_text(text)) == document);
}

TEST_CASE("A line is cut between characters and says so", "[text]") {
    CHECK(shown_line("ten bytes.", 10) == "ten bytes.");
    CHECK(shown_line("eleven byte", 10) == "eleven ...");
    // Three bytes each: two fit before the dots of ten bytes, and three would be twelve.
    CHECK(shown_line("帯域幅大", 10) == "帯域...");
    CHECK(shown_line("帯域幅", 10) == "帯域幅");
    // Six each; the second would end beyond the room beside the dots.
    CHECK(shown_line("\x1b\x1b\x1b", 12) == R"(\u001b...)");
    CHECK(shown_line(std::string(1 << 20, 'x'), 100).size() == 100);
    CHECK(shown_line(std::string(1 << 20, '\x1b'), 100).size() <= 100);
}

TEST_CASE("Whatever is cut where, it is text of that length at most, and cut again the same",
          "[text]") {
    // A character may end within what is kept for the dots, and others follow.
    for (const std::string text : {"a帯bcdef", "ab帯cdef", "größere", "🚀🚀abc", "abc\x1b\x1b zz"}) {
        for (std::size_t longest = 3; longest <= text.size(); ++longest) {
            CAPTURE(text, longest);
            for (const std::string& cut : {cut_text(text, longest), shown_line(text, longest)}) {
                CHECK(is_utf8(cut));
                CHECK(cut.size() <= longest);
            }
            CHECK(cut_text(cut_text(text, longest), longest) == cut_text(text, longest));
            CHECK(shown_line(shown_line(text, longest), longest) == shown_line(text, longest));
        }
    }
}

TEST_CASE("What a file may have has blanks for control characters and is cut", "[text]") {
    CHECK(cut_text("a\nb\x1b\xc2\x9b\xe2\x80\xae"
                   "c",
                   100) == "a b   c");
    CHECK(cut_text("größer", 5) == "gr...");  // "grö" and the dots are seven bytes
    CHECK(cut_text("größer", 8) == "größer");
}

}  // namespace
}  // namespace bucketwise
