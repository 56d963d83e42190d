// The objects of a long JSON list one after another, parsed by simdjson, in memory that does not
// grow with the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <simdjson.h>

#include "import/source/byte_source.h"

namespace bucketwise {

// Reads one of three forms: a list of objects, one object that has such a list under a known key,
// or objects one after another with nothing between them.
class JsonObjects {
  public:
    // Bytes of one object, and of all that lies around a list.
    static constexpr std::size_t longest_object = std::size_t{16} << 20;
    // Bytes of text that are parsed at once, unless an object is longer.
    static constexpr std::size_t window_bytes = std::size_t{1} << 19;
    static constexpr std::size_t deepest = 100;

    // `keys` may name the list where an object holds it. `file` is for messages only.
    JsonObjects(ByteSource source, std::vector<std::string> keys, std::string file);

    // The next objects, valid until more are asked for; nothing at the end. Throws InputError for
    // bytes that are no JSON, end too early, or are nested too deeply.
    std::optional<simdjson::dom::array> next();

    // After the end: the object that held the list, without it; nothing if none did.
    std::optional<simdjson::dom::element> around();

    [[nodiscard]] bool is_list() const { return form_ == Form::list || form_ == Form::held_list; }

  private:
    enum class Form : std::uint8_t { unknown, list, held_list, sequence };

    bool fill();
    int peek();
    template <typename Ends>
    std::size_t length_until(Ends ends);
    [[nodiscard]] std::uint64_t position() const { return read_bytes_ - (end_ - begin_); }
    [[noreturn]] void fail(const std::string& got) const;
    [[noreturn]] void fail_at(std::uint64_t byte) const;

    void begin();
    bool begin_held_list();
    bool goes_on();
    void end_list();
    bool parse(std::size_t length);

    ByteSource source_;
    std::vector<std::string> keys_;
    std::string file_;
    // Read but not taken: from begin_ to end_. The byte before begin_ is free, and simdjson may
    // read its padding beyond end_.
    std::vector<char> window_;
    std::size_t begin_ = 1;
    std::size_t end_ = 1;
    std::uint64_t read_bytes_ = 0;
    Form form_ = Form::unknown;
    bool first_ = true;  // no object is taken yet
    bool ended_ = false;
    std::uint64_t one_by_one_until_ = 0;  // byte
    std::string around_;
    simdjson::dom::parser parser_;
    simdjson::dom::array batch_;
    simdjson::error_code error_ = simdjson::SUCCESS;
};

}  // namespace bucketwise
