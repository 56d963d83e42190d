#include "import/source/json_objects.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr int end_of_bytes = -1;

// Where a text is, in terms of brackets and strings.
struct Nesting {
    std::int64_t depth = 0;
    bool in_string = false;
    bool escaped = false;

    void read(char c) {
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
};

}  // namespace

JsonObjects::JsonObjects(ByteSource source, std::string key, std::string file)
    : source_(std::move(source)), key_(std::move(key)), file_(std::move(file)) {}

int JsonObjects::get() {
    if (at_ == block_.size()) {
        constexpr std::size_t read_at_once = std::size_t{1} << 16;
        block_.resize(read_at_once);
        block_.resize(source_(block_.data(), read_at_once));
        at_ = 0;
        if (block_.empty()) {
            return end_of_bytes;
        }
    }
    ++position_;
    return static_cast<unsigned char>(block_[at_++]);
}

std::string JsonObjects::object_text(char first) {
    std::string text(1, first);
    Nesting nesting;
    nesting.read(first);
    while (nesting.depth > 0) {
        const int next = get();
        if (next == end_of_bytes) {
            throw InputError(file_, "", "the end of an object", "the end of the file");
        }
        if (text.size() == longest_object) {
            throw InputError(file_, "", fmt::format("objects of at most {} bytes", longest_object),
                             fmt::format("a longer one before byte {}", position_));
        }
        text += static_cast<char>(next);
        nesting.read(text.back());
    }
    return text;
}

// After the '{' of an object: reads it up to the list under the key, or to its end where it has
// none. What was read is around_.
bool JsonObjects::enter_list() {
    Nesting nesting;
    nesting.read('{');
    around_.assign(1, '{');
    std::string last;     // string of the object itself
    bool is_key = false;  // what followed it was a colon
    while (nesting.depth > 0) {
        const int next = get();
        if (next == end_of_bytes) {
            throw InputError(file_, "", "the end of an object", "the end of the file");
        }
        const char c = static_cast<char>(next);
        if (around_.size() == longest_object) {
            throw InputError(
                file_, "",
                fmt::format("at most {} bytes before a list of {}", longest_object, key_),
                fmt::format("more before byte {}", position_));
        }
        around_ += c;
        const bool was_in_string = nesting.in_string;
        nesting.read(c);
        if (!was_in_string && nesting.in_string) {
            last.clear();
            is_key = false;
        } else if (was_in_string && nesting.in_string) {
            last += c;
        } else if (c == ':' && nesting.depth == 1) {
            is_key = true;
        } else if (c == '[' && nesting.depth == 2 && is_key && last == key_) {
            return true;
        } else if (c == ',') {
            is_key = false;
        }
    }
    return false;
}

std::optional<std::string> JsonObjects::next() {
    for (;;) {
        const int got = get();
        if (got == end_of_bytes) {
            if (place_ != Place::outside) {
                throw InputError(file_, "", "the end of a list", "the end of the file");
            }
            return std::nullopt;
        }
        const char c = static_cast<char>(got);
        if (std::string_view(" \t\r\n,").find(c) != std::string_view::npos) {
            continue;
        }
        const bool began = std::exchange(began_, true);
        if (place_ == Place::in_held_list && c == ']') {
            place_ = Place::outside;
            // What comes after the list, as if the object began anew.
            around_ += ']';
            around_.append(object_text('{'), 1, std::string::npos);
        } else if (place_ == Place::in_list && c == ']') {
            place_ = Place::outside;
        } else if (c == '[' && place_ == Place::outside && !began) {
            place_ = Place::in_list;
        } else if (c == '{' && place_ == Place::outside && !key_.empty() && around_.empty()) {
            if (!enter_list()) {
                return std::exchange(around_, {});
            }
            place_ = Place::in_held_list;
        } else if (c == '{') {
            return object_text('{');
        } else {
            throw InputError(file_, "", "a JSON object",
                             fmt::format("the byte 0x{:02x} at {}", got, position_ - 1));
        }
    }
}

}  // namespace bucketwise
