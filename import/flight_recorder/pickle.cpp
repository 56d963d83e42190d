#include "import/flight_recorder/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/source/plain_text.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// https://docs.python.org/3/library/pickletools.html, but for what makes objects.
enum class Opcode : std::uint8_t {
    mark = '(',
    stop = '.',
    binary_float = 'G',
    binary_int = 'J',
    binary_int_1 = 'K',
    binary_int_2 = 'M',
    none = 'N',
    reduce = 'R',
    binary_unicode = 'X',
    append = 'a',
    global = 'c',
    appends = 'e',
    binary_get = 'h',
    long_binary_get = 'j',
    binary_put = 'q',
    long_binary_put = 'r',
    set_item = 's',
    tuple = 't',
    set_items = 'u',
    empty_list = ']',
    empty_tuple = ')',
    empty_dictionary = '}',
    protocol = 0x80,
    tuple_1 = 0x85,
    tuple_2 = 0x86,
    tuple_3 = 0x87,
    new_true = 0x88,
    new_false = 0x89,
    long_1 = 0x8a,
    short_binary_unicode = 0x8c,
    binary_unicode_8 = 0x8d,
    memoize = 0x94,
    frame = 0x95
};

// Names of those that are refused, as somebody who meets one looks for it.
std::string_view refused_name(std::uint8_t opcode) {
    constexpr std::array<std::pair<std::uint8_t, std::string_view>, 17> names{
        {{'b', "BUILD"},
         {'i', "INST"},
         {'o', "OBJ"},
         {0x81, "NEWOBJ"},
         {0x92, "NEWOBJ_EX"},
         {'P', "PERSID"},
         {'Q', "BINPERSID"},
         {0x82, "EXT1"},
         {0x83, "EXT2"},
         {0x84, "EXT4"},
         {0x93, "STACK_GLOBAL"},
         {'0', "POP"},
         {'1', "POP_MARK"},
         {'2', "DUP"},
         {'I', "INT"},
         {'C', "BINBYTES"},
         {0x8b, "LONG4"}}};
    const auto* const found =
        std::ranges::find(names, opcode, [](const auto& n) { return n.first; });
    return found == names.end() ? "unknown" : found->second;
}

// The functions of torch.jit._pickle with which some versions of PyTorch's pickler say the type of
// a list or a dictionary: what they would return is their first argument.
bool says_type(std::string_view name) {
    constexpr std::array<std::string_view, 4> names{"restore_type_tag", "build_intlist",
                                                    "build_doublelist", "build_boollist"};
    return std::ranges::find(names, name) != names.end();
}

class PickleReader {
  public:
    PickleReader(const ByteSource& source, const std::string& file)
        : source_(source), file_(file) {}

    Pickle read() {
        if (byte() != static_cast<std::uint8_t>(Opcode::protocol) || byte() > newest_protocol) {
            fail("a pickle of protocol 2 to 5", "something else");
        }
        while (!step(static_cast<Opcode>(byte()))) {
        }
        pickle_.root = pop();
        return std::move(pickle_);
    }

  private:
    static constexpr std::uint8_t newest_protocol = 5;
    static constexpr std::size_t most_marks = 1000;
    // Of lists and dictionaries, and on the stack: all that values do not count.
    static constexpr std::size_t most_items = 8'000'000;
    // Stands for a function that says a type; never a place of a value.
    static constexpr std::uint32_t type_function = ~std::uint32_t{0};

    [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
        throw InputError(file_, "", expected, fmt::format("{} at byte {}", got, position_));
    }

    // --- bytes ---

    std::uint8_t byte() {
        if (at_ == block_.size()) {
            constexpr std::size_t block_bytes = std::size_t{1} << 16;
            block_.resize(block_bytes);
            block_.resize(source_(block_.data(), block_bytes));
            at_ = 0;
            if (block_.empty()) {
                fail("a whole pickle", "the end of the file");
            }
        }
        ++position_;
        return static_cast<std::uint8_t>(block_[at_++]);
    }

    // Little endian.
    std::uint64_t number(int bytes) {
        std::uint64_t value = 0;
        for (int i = 0; i < bytes; ++i) {
            value |= static_cast<std::uint64_t>(byte()) << (8 * i);
        }
        return value;
    }

    // Grows as it is read: a length alone takes no memory.
    std::string text(std::uint64_t length) {
        if (length > most_pickled_text - text_bytes_) {
            fail(fmt::format("at most {} bytes of text", most_pickled_text), "more");
        }
        text_bytes_ += length;
        std::string read;
        while (read.size() < length) {
            read += static_cast<char>(byte());
        }
        return read;
    }

    std::string line() {
        constexpr std::size_t longest = 200;
        std::string read;
        for (char c = static_cast<char>(byte()); c != '\n'; c = static_cast<char>(byte())) {
            if (read.size() == longest) {
                fail("a name", "a longer line");
            }
            read += c;
        }
        return read;
    }

    // --- the machine ---

    void push(std::uint32_t place) {
        if (stack_.size() + items_ >= most_items) {
            fail(fmt::format("at most {} items", most_items), "more");
        }
        stack_.push_back(place);
    }
    void push(PickledValue value) {
        if (pickle_.values.size() == most_pickled_values) {
            fail(fmt::format("at most {} values", most_pickled_values), "more");
        }
        items_ += value.items.size();
        pickle_.values.push_back(std::move(value));
        push(static_cast<std::uint32_t>(pickle_.values.size() - 1));
    }
    void push(PickledKind kind, std::int64_t integer = 0) {
        push({.kind = kind, .integer = integer});
    }

    std::size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }

    std::uint32_t pop() {
        if (stack_.size() <= bottom()) {
            fail("a value on the stack", "none");
        }
        const std::uint32_t place = stack_.back();
        stack_.pop_back();
        if (place == type_function) {
            fail("data", "the name of a function");
        }
        return place;
    }

    // What lies above the last mark.
    std::vector<std::uint32_t> marked() {
        if (marks_.empty()) {
            fail("a mark on the stack", "none");
        }
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<std::uint32_t> items(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        if (std::ranges::find(items, type_function) != items.end()) {
            fail("data", "the name of a function");
        }
        return items;
    }

    PickledValue& container(PickledKind kind) {
        if (stack_.size() <= bottom() || stack_.back() == type_function ||
            pickle_.values[stack_.back()].kind != kind) {
            fail(kind == PickledKind::list ? "a list to append to" : "a dictionary to set items of",
                 "something else");
        }
        return pickle_.values[stack_.back()];
    }

    void add(PickledKind kind, const std::vector<std::uint32_t>& items) {
        PickledValue& into = container(kind);
        if (kind == PickledKind::dictionary && items.size() % 2 != 0) {
            fail("a value for each key", "one too few");
        }
        items_ += items.size();
        into.items.insert(into.items.end(), items.begin(), items.end());
    }

    void push_tuple(std::size_t count) {
        std::vector<std::uint32_t> items(count);
        for (std::size_t i = count; i > 0; --i) {
            items[i - 1] = pop();
        }
        push({.kind = PickledKind::list, .items = std::move(items)});
    }

    void push_text(std::uint64_t length) {
        std::string read = text(length);
        push(PickledKind::text, std::ssize(pickle_.texts));
        pickle_.texts.push_back(std::move(read));
    }

    void push_long() {
        const int bytes = byte();
        if (bytes > 8) {
            fail("integers of 64 bits", "a longer one");
        }
        std::uint64_t value = number(bytes);
        if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1)) != 0) {
            value |= ~std::uint64_t{0} << (8 * bytes);
        }
        push(PickledKind::integer, static_cast<std::int64_t>(value));
    }

    void push_float() {
        std::uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) {
            bits = bits << 8 | byte();
        }
        push({.kind = PickledKind::number, .number = std::bit_cast<double>(bits)});
    }

    void put(std::uint64_t index) {
        if (stack_.size() <= bottom()) {
            fail("a value to remember", "none");
        }
        if (memo_.size() == most_pickled_values) {
            fail(fmt::format("at most {} remembered values", most_pickled_values), "more");
        }
        memo_[index] = stack_.back();
    }

    void get(std::uint64_t index) {
        const auto found = memo_.find(index);
        if (found == memo_.end()) {
            fail("a value that was remembered", fmt::format("number {}", index));
        }
        push(found->second);
    }

    void push_function() {
        const std::string module = line();
        const std::string name = line();
        if (module != "torch.jit._pickle" || !says_type(name)) {
            fail("data alone, no function or class",
                 fmt::format("GLOBAL {} {}", plain_text(module), plain_text(name)));
        }
        push(type_function);
    }

    // "Calls" a function that says a type.
    void reduce() {
        const std::uint32_t arguments = pop();
        if (stack_.size() <= bottom() || stack_.back() != type_function) {
            fail("data alone", "REDUCE, a call,");
        }
        stack_.pop_back();
        const PickledValue& tuple = pickle_.values[arguments];
        if (tuple.kind != PickledKind::list || tuple.items.empty()) {
            fail("a list and its type", "something else");
        }
        push(tuple.items.front());
    }

    // Whether that was the end.
    bool step(Opcode opcode) {
        switch (opcode) {
            case Opcode::stop:
                return true;
            case Opcode::mark:
                if (marks_.size() == most_marks) {
                    fail(fmt::format("at most {} marks", most_marks), "more");
                }
                marks_.push_back(stack_.size());
                break;
            case Opcode::none:
                push(PickledKind::none);
                break;
            case Opcode::new_true:
                push(PickledKind::boolean, 1);
                break;
            case Opcode::new_false:
                push(PickledKind::boolean, 0);
                break;
            case Opcode::binary_int:
                push(PickledKind::integer, static_cast<std::int32_t>(number(4)));
                break;
            case Opcode::binary_int_1:
                push(PickledKind::integer, byte());
                break;
            case Opcode::binary_int_2:
                push(PickledKind::integer, static_cast<std::int64_t>(number(2)));
                break;
            case Opcode::long_1:
                push_long();
                break;
            case Opcode::binary_float:
                push_float();
                break;
            case Opcode::binary_unicode:
                push_text(number(4));
                break;
            case Opcode::short_binary_unicode:
                push_text(byte());
                break;
            case Opcode::binary_unicode_8:
                push_text(number(8));
                break;
            case Opcode::empty_list:
            case Opcode::empty_tuple:
                push(PickledKind::list);
                break;
            case Opcode::empty_dictionary:
                push(PickledKind::dictionary);
                break;
            case Opcode::append: {
                const std::uint32_t item = pop();
                add(PickledKind::list, {item});
                break;
            }
            case Opcode::appends:
                add(PickledKind::list, marked());
                break;
            case Opcode::set_item: {
                const std::uint32_t value = pop();
                const std::uint32_t key = pop();
                add(PickledKind::dictionary, {key, value});
                break;
            }
            case Opcode::set_items:
                add(PickledKind::dictionary, marked());
                break;
            case Opcode::tuple:
                push({.kind = PickledKind::list, .items = marked()});
                break;
            case Opcode::tuple_1:
                push_tuple(1);
                break;
            case Opcode::tuple_2:
                push_tuple(2);
                break;
            case Opcode::tuple_3:
                push_tuple(3);
                break;
            case Opcode::binary_put:
                put(byte());
                break;
            case Opcode::long_binary_put:
                put(number(4));
                break;
            case Opcode::memoize:
                put(memo_.size());
                break;
            case Opcode::binary_get:
                get(byte());
                break;
            case Opcode::long_binary_get:
                get(number(4));
                break;
            case Opcode::global:
                push_function();
                break;
            case Opcode::reduce:
                reduce();
                break;
            case Opcode::protocol:
                byte();
                break;
            case Opcode::frame:
                number(8);
                break;
            default: {
                const auto code = static_cast<std::uint8_t>(opcode);
                fail("a pickle of data alone",
                     fmt::format("the opcode {} (0x{:02x})", refused_name(code), code));
            }
        }
        return false;
    }

    const ByteSource& source_;
    const std::string& file_;
    std::string block_;
    std::size_t at_ = 0;
    std::uint64_t position_ = 0;
    std::uint64_t text_bytes_ = 0;
    std::size_t items_ = 0;
    Pickle pickle_;
    std::vector<std::uint32_t> stack_;  // places of values
    std::vector<std::size_t> marks_;    // sizes of the stack
    std::unordered_map<std::uint64_t, std::uint32_t> memo_;
};

class Unfolder {
  public:
    Unfolder(const Pickle& pickle, std::string_view but_for, const std::string& file)
        : pickle_(pickle), but_for_(but_for), file_(file) {}

    // As deep as its argument is nested, which is bounded.
    // NOLINTNEXTLINE(misc-no-recursion)
    Json json(const PickledValue& value, int depth) {
        constexpr int deepest = 20;
        constexpr std::int64_t most = 100'000;
        if (depth > deepest || ++count_ > most) {
            throw InputError(file_, "",
                             fmt::format("at most {} values in an entry, {} deep", most, deepest),
                             "more");
        }
        switch (value.kind) {
            case PickledKind::boolean:
                return value.integer != 0;
            case PickledKind::integer:
                return value.integer;
            case PickledKind::number:
                return value.number;
            case PickledKind::text:
                return text(value);
            case PickledKind::list:
                return list(value, depth);
            case PickledKind::dictionary:
                return object(value, depth);
            default:
                return nullptr;
        }
    }

  private:
    [[nodiscard]] const std::string& text(const PickledValue& value) const {
        return pickle_.texts[static_cast<std::size_t>(value.integer)];
    }

    // NOLINTNEXTLINE(misc-no-recursion)
    Json list(const PickledValue& value, int depth) {
        Json list = Json::array();
        for (const std::uint32_t item : value.items) {
            list.push_back(json(pickle_.values[item], depth + 1));
        }
        return list;
    }

    // NOLINTNEXTLINE(misc-no-recursion)
    Json object(const PickledValue& value, int depth) {
        Json object = Json::object();
        for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
            const PickledValue& key = pickle_.values[value.items[i]];
            if (key.kind == PickledKind::text && text(key) != but_for_) {
                object[text(key)] = json(pickle_.values[value.items[i + 1]], depth + 1);
            }
        }
        return object;
    }

    const Pickle& pickle_;
    std::string_view but_for_;
    const std::string& file_;
    std::int64_t count_ = 0;
};

}  // namespace

const PickledValue* Pickle::find(const PickledValue& dictionary, std::string_view key) const {
    for (std::size_t i = 0;
         dictionary.kind == PickledKind::dictionary && i + 1 < dictionary.items.size(); i += 2) {
        const PickledValue& name = values[dictionary.items[i]];
        if (name.kind == PickledKind::text &&
            texts[static_cast<std::size_t>(name.integer)] == key) {
            return &values[dictionary.items[i + 1]];
        }
    }
    return nullptr;
}

Pickle read_pickle(const ByteSource& source, const std::string& file) {
    return PickleReader(source, file).read();
}

Json unfolded(const Pickle& pickle, const PickledValue& value, std::string_view but_for,
              const std::string& file) {
    return Unfolder(pickle, but_for, file).json(value, 0);
}

}  // namespace bucketwise
