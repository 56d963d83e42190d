// The objects of a long JSON list one by one, in memory that does not grow with the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "import/source/byte_source.h"

namespace bucketwise {

// What a stream of bytes holds: objects one after another with nothing between them, a list of
// objects, or one object that has a list of objects under a known key.
class JsonObjects {
  public:
    // What one object may take, and what lies around the list.
    static constexpr std::size_t longest_object = std::size_t{4} << 20;

    // `key`: of the list, where one object holds it. `file` is for messages only.
    JsonObjects(ByteSource source, std::string key, std::string file);

    // The text of the next object, not yet checked to be JSON; nothing at the end. Throws
    // InputError where the bytes end in mid-object, and where one is too long.
    std::optional<std::string> next();

    // Once there is no next: the text of the object that held the list, which is left out; empty
    // where none did.
    [[nodiscard]] const std::string& around() const { return around_; }

  private:
    int get();
    std::string object_text(char first);
    bool enter_list();

    ByteSource source_;
    std::string key_;
    std::string file_;
    std::string block_;
    std::size_t at_ = 0;
    std::uint64_t position_ = 0;
    bool began_ = false;  // something but white space was read
    enum class Place : std::uint8_t { outside, in_list, in_held_list } place_ = Place::outside;
    std::string around_;
};

}  // namespace bucketwise
