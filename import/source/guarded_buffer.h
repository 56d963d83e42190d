// Blocks of a ByteSource as a stream, watching that no single token needs unbounded memory, as the
// JSON library holds a whole one.
#pragma once

#include <array>
#include <cstddef>
#include <streambuf>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "import/source/byte_source.h"
#include "sim/base/error.h"

namespace bucketwise {

class GuardedBuffer : public std::streambuf {
  public:
    GuardedBuffer(const ByteSource& source, const std::string& file)
        : source_(source), file_(file) {}

  protected:
    int_type underflow() override {
        const std::size_t count = source_(block_.data(), block_.size());
        if (count == 0) {
            return traits_type::eof();
        }
        for (std::size_t i = 0; i < count; ++i) {
            watch(block_[i]);
        }
        setg(block_.data(), block_.data(), block_.data() + count);
        return traits_type::to_int_type(block_[0]);
    }

  private:
    void watch(char c) {
        constexpr std::string_view between = ",:[]{} \t\r\n\v\f";
        const bool quote = c == '"' && !escaped_;
        const bool ends = quote || (!in_string_ && between.find(c) != std::string_view::npos);
        run_ = ends ? 0 : run_ + 1;
        escaped_ = in_string_ && c == '\\' && !escaped_;
        in_string_ = in_string_ != quote;
        if (run_ > longest_token) {
            throw InputError(file_, "",
                             fmt::format("names and numbers of at most {} bytes", longest_token),
                             "a longer one");
        }
    }

    // A name is some hundred bytes long; a list of a collective's sizes may have thousands of
    // numbers.
    static constexpr std::size_t longest_token = std::size_t{4} << 20;

    const ByteSource& source_;
    const std::string& file_;
    std::array<char, std::size_t{1} << 16> block_{};
    std::size_t run_ = 0;  // bytes of the token so far
    bool in_string_ = false;
    bool escaped_ = false;
};

}  // namespace bucketwise
