// Blocks of a ByteSource as a stream, watching that no single token needs unbounded memory, as the
// JSON library holds a whole one.
#pragma once

#include <array>
#include <cctype>
#include <cstddef>
#include <streambuf>
#include <string>

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
        ++run_;
        if (in_string_) {
            if (escaped_) {
                escaped_ = false;
            } else if (c == '\\') {
                escaped_ = true;
            } else if (c == '"') {
                in_string_ = false;
                run_ = 0;
            }
        } else if (c == '"') {
            in_string_ = true;
            run_ = 0;
        } else if (c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}' ||
                   std::isspace(static_cast<unsigned char>(c)) != 0) {
            run_ = 0;
        }
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
