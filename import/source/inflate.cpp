#include "import/source/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 16;
constexpr std::size_t most_at_once = std::size_t{1} << 20;
constexpr std::string_view gzip_magic = "\x1f\x8b";

// The most that gzip can do is 1032. A file of some megabytes may be that repetitive; a large one
// is made to fill its reader's memory.
constexpr std::uint64_t most_times = 200;
constexpr std::uint64_t always_allowed = std::uint64_t{64} << 20;

class Inflater {
  public:
    Inflater(ByteSource source, std::string file)
        : source_(std::move(source)), file_(std::move(file)) {
        constexpr int largest_window = 15;
        constexpr int gzip_only = 16;
        check(inflateInit2(&stream_, largest_window + gzip_only));
    }
    ~Inflater() { inflateEnd(&stream_); }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    std::size_t read(char* buffer, std::size_t size) {
        stream_.next_out = reinterpret_cast<Bytef*>(buffer);
        stream_.avail_out = static_cast<uInt>(std::min(size, most_at_once));
        const uInt room = stream_.avail_out;
        while (stream_.avail_out == room) {
            if (stream_.avail_in == 0 && !fill()) {
                if (in_member_) {
                    fail(fmt::format("one that ends after {} bytes", read_));
                }
                return 0;
            }
            if (in_member_ || begin_member()) {
                inflate_block();
            }
        }
        const std::size_t count = room - stream_.avail_out;
        written_ += count;
        if (written_ > always_allowed && written_ > most_times * read_) {
            throw InputError(
                file_, "",
                fmt::format("a file that unfolds to at most {} times its size", most_times),
                "a decompression bomb");
        }
        return count;
    }

  private:
    [[noreturn]] void fail(const std::string& got) const {
        throw InputError(file_, "", "a whole gzip file", got);
    }

    static void check(int status) {
        if (status == Z_MEM_ERROR) {
            throw std::bad_alloc();
        }
        invariant(status == Z_OK, "zlib can read gzip");
    }

    bool fill() {
        const std::size_t count = source_(block_.data(), block_.size());
        stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
        stream_.avail_in = static_cast<uInt>(count);
        read_ += count;
        return count > 0;
    }

    // Skips the zeros after a member that tapes and disks fill up with. False: the block has
    // nothing else.
    bool begin_member() {
        while (stream_.avail_in > 0 && *stream_.next_in == 0) {
            ++stream_.next_in;
            --stream_.avail_in;
        }
        if (stream_.avail_in > 0) {
            check(inflateReset(&stream_));
            in_member_ = true;
        }
        return in_member_;
    }

    void inflate_block() {
        const int status = ::inflate(&stream_, Z_NO_FLUSH);
        if (status == Z_STREAM_END) {
            in_member_ = false;
        } else if (status != Z_OK && status != Z_BUF_ERROR && status != Z_MEM_ERROR) {
            fail(fmt::format("damage at byte {}", read_ - stream_.avail_in));
        } else if (status != Z_BUF_ERROR) {
            check(status);
        }
    }

    ByteSource source_;
    std::string file_;
    std::array<char, block_bytes> block_{};
    std::uint64_t read_ = 0;
    std::uint64_t written_ = 0;
    bool in_member_ = true;
    z_stream stream_{};
};

}  // namespace

ByteSource inflated(ByteSource source, const std::string& file) {
    constexpr std::size_t mark_bytes = 3;
    Peeked bytes = peeked(std::move(source), mark_bytes);
    if (bytes.begin.starts_with(gzip_magic)) {
        const auto inflater = std::make_shared<Inflater>(std::move(bytes.all), file);
        bytes = peeked([inflater](char* to, std::size_t size) { return inflater->read(to, size); },
                       mark_bytes);
    }
    std::array<char, mark_bytes> mark{};
    bytes.all(mark.data(), bytes.begin.size() - without_byte_order_mark(bytes.begin).size());
    const auto text = std::make_shared<ByteSource>(std::move(bytes.all));
    return [text](char* buffer, std::size_t size) { return (*text)(buffer, size); };
}

}  // namespace bucketwise
