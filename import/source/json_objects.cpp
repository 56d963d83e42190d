#include "import/source/json_objects.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr int end_of_bytes = -1;
constexpr std::string_view blanks = " \t\r\n";
constexpr std::size_t nowhere = std::string_view::npos;

// How deep a text is nested so far.
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

// Where an object seems to follow another last: between them. The place may lie within an object,
// or a name: then the text before it is no list, as a prefix of JSON leaves no choice whether a
// string or a value is open.
std::size_t likely_end(std::string_view text) {
    for (std::size_t next = text.rfind('{'); next != nowhere && next > 0;
         next = text.rfind('{', next - 1)) {
        const std::size_t comma = text.find_last_not_of(blanks, next - 1);
        if (comma == nowhere || comma == 0 || text[comma] != ',') {
            continue;
        }
        const std::size_t last = text.find_last_not_of(blanks, comma - 1);
        if (last != nowhere && text[last] == '}') {
            return last + 1;
        }
    }
    return nowhere;
}

}  // namespace

JsonObjects::JsonObjects(ByteSource source, std::vector<std::string> keys, std::string file)
    : source_(std::move(source)), keys_(std::move(keys)), file_(std::move(file)) {}

void JsonObjects::fail(const std::string& got) const {
    throw InputError(file_, "", "JSON objects", got);
}

void JsonObjects::fail_at(std::uint64_t byte) const {
    fail(fmt::format("something else at byte {}", byte));
}

// --- bytes ---

// Reads until the window is full. A window that is full already grows. False: nothing was read.
bool JsonObjects::fill() {
    std::size_t rest = end_ - begin_;
    if (rest > 0 && begin_ > 1) {
        std::memmove(window_.data() + 1, window_.data() + begin_, rest);
    }
    begin_ = 1;
    end_ = 1 + rest;
    if (1 + rest + simdjson::SIMDJSON_PADDING >= window_.size()) {
        if (rest >= longest_object) {
            throw InputError(file_, "", fmt::format("objects of at most {} bytes", longest_object),
                             fmt::format("a longer one at byte {}", position()));
        }
        const std::size_t bytes = std::max(window_bytes, 2 * rest);
        window_.resize(1 + bytes + simdjson::SIMDJSON_PADDING);
        if (parser_.allocate(bytes + 2, deepest - 1) == simdjson::MEMALLOC) {
            throw std::bad_alloc();
        }
    }
    const std::size_t room = window_.size() - simdjson::SIMDJSON_PADDING;
    for (std::size_t count = 1; count > 0 && end_ < room; end_ += count, read_bytes_ += count) {
        count = source_(window_.data() + end_, room - end_);
    }
    return end_ > 1 + rest;
}

// The next byte that is no blank; end_of_bytes: there is none.
int JsonObjects::peek() {
    while (begin_ < end_ || fill()) {
        const char c = window_[begin_];
        if (blanks.find(c) == nowhere) {
            return static_cast<unsigned char>(c);
        }
        ++begin_;
    }
    return end_of_bytes;
}

// Up to and with the first byte that `ends` the search.
template <typename Ends>
std::size_t JsonObjects::length_until(Ends ends) {
    for (std::size_t length = 0;; ++length) {
        if (begin_ + length == end_ && !fill()) {
            fail(fmt::format("a file that ends after byte {}, as if it was cut off", read_bytes_));
        }
        if (ends(window_[begin_ + length])) {
            return length + 1;
        }
    }
}

// --- lists ---

void JsonObjects::begin() {
    const int c = peek();
    if (c == '[') {
        ++begin_;
        form_ = Form::list;
    } else {
        form_ = c == '{' && !keys_.empty() && begin_held_list() ? Form::held_list : Form::sequence;
    }
}

// Takes all before the list that an object holds; nothing if it holds none.
bool JsonObjects::begin_held_list() {
    Nesting nesting;
    std::string last;     // string of the object itself
    bool is_key = false;  // a colon followed it
    bool found = false;
    const std::size_t length = length_until([&](char c) {
        const bool was_in_string = nesting.in_string;
        nesting.read(c);
        if (!was_in_string && nesting.in_string) {
            last.clear();
            is_key = false;
        } else if (was_in_string && nesting.in_string) {
            last += c;
        } else if (c == ':' && nesting.depth == 1) {
            is_key = true;
        } else if (c == ',') {
            is_key = false;
        }
        found = c == '[' && nesting.depth == 2 && is_key &&
                std::ranges::find(keys_, last) != keys_.end();
        return found || nesting.depth == 0;
    });
    if (found) {
        around_.assign(window_.data() + begin_, length);
        begin_ += length;
    }
    return found;
}

void JsonObjects::end_list() {
    ++begin_;
    ended_ = true;
    if (form_ == Form::held_list) {
        Nesting nesting{.depth = 1};
        const std::size_t length = length_until([&](char c) {
            nesting.read(c);
            return nesting.depth == 0;
        });
        around_ += ']';
        around_.append(window_.data() + begin_, length);
        begin_ += length;
    }
    if (peek() != end_of_bytes) {
        fail_at(position());
    }
}

std::optional<simdjson::dom::element> JsonObjects::around() {
    if (form_ != Form::held_list) {
        return std::nullopt;
    }
    simdjson::dom::element object;
    if (parser_.parse(around_).get(object) != simdjson::SUCCESS) {
        fail(fmt::format("something else around the list of {}", keys_.front()));
    }
    return object;
}

// --- objects ---

// Whether an object follows, which is then next.
bool JsonObjects::goes_on() {
    if (ended_) {
        return false;
    }
    int c = peek();
    if (form_ == Form::sequence && c == end_of_bytes) {
        return false;
    }
    if (form_ != Form::sequence) {
        if (c == ']') {
            end_list();
            return false;
        }
        if (c == ',' && !first_) {
            ++begin_;
            c = peek();
        } else if (!first_ && c != end_of_bytes) {
            fail_at(position());
        }
    }
    if (c != '{') {
        // Where bytes end, this says that the file was cut off.
        length_until([](char) { return true; });
        fail_at(position());
    }
    first_ = false;
    return true;
}

std::optional<simdjson::dom::array> JsonObjects::next() {
    if (form_ == Form::unknown) {
        begin();
    }
    if (!goes_on()) {
        return std::nullopt;
    }
    if (form_ != Form::sequence && position() >= one_by_one_until_) {
        if (begin_ > 1) {
            fill();
        }
        const std::size_t length = likely_end({window_.data() + begin_, end_ - begin_});
        if (length != nowhere && parse(length)) {
            return batch_;
        }
        one_by_one_until_ = position() + (length == nowhere ? window_bytes : length);
    }
    Nesting nesting;
    const std::uint64_t at = position();
    if (!parse(length_until([&](char c) {
            nesting.read(c);
            return nesting.depth == 0;
        }))) {
        if (error_ == simdjson::DEPTH_ERROR) {
            throw InputError(file_, "", fmt::format("nesting of at most {}", deepest),
                             "a deeper one");
        }
        fail(fmt::format("something else in the object that begins at byte {}", at));
    }
    return batch_;
}

// Takes so many bytes as objects with commas between them. False if they are none: nothing is
// taken.
bool JsonObjects::parse(std::size_t length) {
    const char after = std::exchange(window_[begin_ + length], ']');
    window_[begin_ - 1] = '[';
    error_ = parser_.parse(window_.data() + begin_ - 1, length + 2, false).get(batch_);
    window_[begin_ + length] = after;
    if (error_ != simdjson::SUCCESS) {
        return false;
    }
    for (const simdjson::dom::element element : batch_) {
        if (!element.is_object()) {
            return false;
        }
    }
    begin_ += length;
    return true;
}

}  // namespace bucketwise
