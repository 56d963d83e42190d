// Blocks of a ByteSource as a stream, watching that no single token needs unbounded memory, as the
// JSON library holds a whole one. Between two values what lies ahead can be taken out of the
// stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "import/source/byte_source.h"
#include "sim/base/error.h"

namespace bucketwise {

class GuardedBuffer : public std::streambuf {
  public:
    // What ahead() gives at most.
    static constexpr std::size_t window_bytes = std::size_t{1} << 19;

    // `padding_bytes` can be read beyond what ahead() gives.
    GuardedBuffer(const ByteSource& source, const std::string& file, std::size_t padding_bytes = 0)
        : source_(source), file_(file), window_(window_bytes + padding_bytes) {}

    // What follows in the stream: window_bytes of it, fewer only where it ends. Only between
    // tokens.
    std::span<char> ahead() {
        const std::size_t rest = static_cast<std::size_t>(end() - gptr());
        if (rest > 0) {
            std::memmove(window_.data(), gptr(), rest);
        }
        filled_ = rest;
        while (filled_ < window_bytes && fill(window_bytes - filled_)) {
        }
        give_out(0, 0);
        run_ = 0;
        in_string_ = escaped_ = false;
        return {window_.data(), filled_};
    }

    // Takes the first `count` bytes of what ahead() gave out of the stream.
    void skip(std::size_t count) {
        give_out(count, 0);
        skipped_bytes_ += count;
    }

    [[nodiscard]] std::uint64_t skipped_bytes() const { return skipped_bytes_; }

    // Of all that was taken from the source, how much has left the stream.
    [[nodiscard]] std::uint64_t position() {
        return read_bytes_ - static_cast<std::uint64_t>(end() - gptr());
    }

  protected:
    int_type underflow() override {
        auto begin =
            static_cast<std::size_t>((gptr() == nullptr ? end() : gptr()) - window_.data());
        if (begin == filled_) {
            begin = filled_ = 0;
            give_out(0, 0);  // where it ends, whoever asks again finds it ended, too
            if (!fill(block_bytes)) {
                return traits_type::eof();
            }
        }
        give_out(begin, std::min(filled_ - begin, block_bytes));
        std::for_each(gptr(), egptr(), [this](char c) { watch(c); });
        return traits_type::to_int_type(*gptr());
    }

  private:
    char* end() { return window_.data() + filled_; }

    bool fill(std::size_t size) {
        const std::size_t count = source_(end(), size);
        filled_ += count;
        read_bytes_ += count;
        return count > 0;
    }

    void give_out(std::size_t begin, std::size_t count) {
        char* const first = window_.data() + begin;
        setg(first, first, first + count);
    }

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
    // What the stream gets at once.
    static constexpr std::size_t block_bytes = std::size_t{1} << 12;

    const ByteSource& source_;
    const std::string& file_;
    std::vector<char> window_;
    std::size_t filled_ = 0;
    std::uint64_t read_bytes_ = 0;
    std::uint64_t skipped_bytes_ = 0;
    std::size_t run_ = 0;  // bytes of the token so far
    bool in_string_ = false;
    bool escaped_ = false;
};

}  // namespace bucketwise
