// Lines of a stream of bytes, in bounded memory however long they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "import/source/byte_source.h"

namespace bucketwise {

struct TextLine {
    std::int64_t number = 0;  // from 1
    std::string_view text;    // without its end; valid until the next line is read
    bool too_long = false;    // its end was left out
    bool ended = false;       // by a line end, not by that of the bytes
};

// Bytes of a line that are kept, and bytes after which the line is given up: it may have no end.
struct LineLimits {
    std::size_t kept = std::size_t{1} << 16;  // no line that a program writes for people is longer
    std::size_t skipped = std::size_t{256} << 20;  // a multiple of a MiB
    bool operator==(const LineLimits&) const = default;
};

class LineReader {
  public:
    LineReader(ByteSource source, std::string file, LineLimits limits = {});

    // Nothing at the end. A line ends with LF, CR LF or the end of the bytes; a UTF-8 byte order
    // mark before the first is left out. Throws InputError at a line that is given up.
    std::optional<TextLine> next();

  private:
    bool fill();

    ByteSource source_;
    std::string file_;
    LineLimits limits_;
    std::string block_;      // read but not yet given out from `begin_` to `end_`
    std::size_t begin_ = 0;  // in the block
    std::size_t end_ = 0;
    std::string line_;
    std::int64_t number_ = 0;
};

}  // namespace bucketwise
