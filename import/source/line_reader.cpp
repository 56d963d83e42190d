#include "import/source/line_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t block_size = std::size_t{1} << 16;

}  // namespace

LineReader::LineReader(ByteSource source, std::string file, LineLimits limits)
    : source_(std::move(source)),
      file_(std::move(file)),
      limits_(limits),
      block_(block_size, '\0') {}

bool LineReader::fill() {
    begin_ = 0;
    end_ = source_(block_.data(), block_.size());
    return end_ > 0;
}

std::optional<TextLine> LineReader::next() {
    line_.clear();
    TextLine line;
    bool any = false;
    std::size_t whole = 0;
    while (!line.ended && (begin_ < end_ || fill())) {
        any = true;
        const std::string_view rest(block_.data() + begin_, end_ - begin_);
        const std::size_t length = std::min(rest.find('\n'), rest.size());
        const std::size_t kept = std::min(length, limits_.kept - line_.size());
        line_.append(rest.substr(0, kept));
        line.too_long = line.too_long || kept < length;
        whole += length;
        if (whole > limits_.skipped) {
            throw InputError(fmt::format("{}:{}", file_, number_ + 1), "",
                             fmt::format("a line of at most {} MiB", limits_.skipped >> 20),
                             "a longer one");
        }
        line.ended = length < rest.size();
        begin_ += length + (line.ended ? 1 : 0);
    }
    if (!any) {
        return std::nullopt;
    }
    line.number = ++number_;
    line.text = line_;
    if (line.text.ends_with('\r')) {
        line.text.remove_suffix(1);
    }
    if (line.number == 1) {
        line.text = without_byte_order_mark(line.text);
    }
    return line;
}

}  // namespace bucketwise
