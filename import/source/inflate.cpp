#include "import/source/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
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
constexpr std::size_t most_at_once = std::size_t{1} << 18;
constexpr std::string_view gzip_magic = "\x1f\x8b";

// The most that gzip can do is 1032. A file of some megabytes may be that repetitive, a large one
// is made to fill whatever reads it.
constexpr std::uint64_t most_times = 200;
constexpr std::uint64_t always_allowed = std::uint64_t{64} << 20;

class Inflater {
  public:
    Inflater(ByteSource source, std::string file)
        : source_(std::move(source)), file_(std::move(file)) {}
    ~Inflater() {
        if (started_) {
            inflateEnd(&stream_);
        }
    }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    std::size_t read(char* buffer, std::size_t size) {
        if (!looked_) {
            look();
        }
        return compressed_ ? inflate_into(buffer, size) : pass_on(buffer, size);
    }

  private:
    [[noreturn]] void fail(const std::string& got) const {
        throw InputError(file_, "", "a whole gzip file", got);
    }

    // Fills the block only when all of it is used. False at the end.
    bool fill() {
        if (begin_ == end_) {
            begin_ = 0;
            end_ = source_(block_.data(), block_.size());
            read_ += end_;
        }
        return begin_ != end_;
    }

    void look() {
        looked_ = true;
        // A source may give a single byte at first.
        while (end_ < gzip_magic.size()) {
            const std::size_t count = source_(block_.data() + end_, block_.size() - end_);
            if (count == 0) {
                break;
            }
            end_ += count;
            read_ += count;
        }
        compressed_ =
            std::string_view(block_.data(), end_).substr(0, gzip_magic.size()) == gzip_magic;
    }

    std::size_t pass_on(char* buffer, std::size_t size) {
        if (!fill()) {
            return 0;
        }
        const std::size_t count = std::min(size, end_ - begin_);
        std::memcpy(buffer, block_.data() + begin_, count);
        begin_ += count;
        return count;
    }

    // Skips zeros after a member, with which tapes and disks fill up; false: there is nothing else
    // in the block.
    bool begin_member() {
        while (started_ && begin_ != end_ && block_[begin_] == '\0') {
            ++begin_;
        }
        if (begin_ == end_) {
            return false;
        }
        start();
        return true;
    }

    void start() {
        constexpr int largest_window = 15;
        constexpr int gzip_only = 16;
        const int status =
            started_ ? inflateReset(&stream_) : inflateInit2(&stream_, largest_window + gzip_only);
        if (status == Z_MEM_ERROR) {
            throw std::bad_alloc();
        }
        invariant(status == Z_OK, "zlib can read gzip");
        started_ = true;
        in_member_ = true;
    }

    std::size_t inflate_into(char* buffer, std::size_t size) {
        stream_.next_out = reinterpret_cast<Bytef*>(buffer);
        stream_.avail_out = static_cast<uInt>(std::min(size, most_at_once));
        const uInt room = stream_.avail_out;
        while (stream_.avail_out == room) {
            if (!fill()) {
                if (in_member_) {
                    fail(fmt::format("one that ends after {} bytes", read_));
                }
                return 0;
            }
            if (!in_member_ && !begin_member()) {
                continue;
            }
            inflate_block();
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

    void inflate_block() {
        stream_.next_in = reinterpret_cast<Bytef*>(block_.data() + begin_);
        stream_.avail_in = static_cast<uInt>(end_ - begin_);
        const int status = ::inflate(&stream_, Z_NO_FLUSH);
        begin_ = end_ - stream_.avail_in;
        if (status == Z_STREAM_END) {
            in_member_ = false;
        } else if (status == Z_MEM_ERROR) {
            throw std::bad_alloc();
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            fail(fmt::format("damage at byte {}", read_ - stream_.avail_in));
        }
    }

    ByteSource source_;
    std::string file_;
    std::array<char, block_bytes> block_{};
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::uint64_t read_ = 0;
    std::uint64_t written_ = 0;
    bool looked_ = false;
    bool compressed_ = false;
    bool started_ = false;
    bool in_member_ = false;
    z_stream stream_{};
};

// Leaves out a byte-order mark at the beginning.
class AfterMark {
  public:
    explicit AfterMark(ByteSource source) : source_(std::move(source)) {}

    std::size_t read(char* buffer, std::size_t size) {
        if (!looked_) {
            look();
        }
        if (head_.empty()) {
            return source_(buffer, size);
        }
        const std::size_t count = head_.copy(buffer, size);
        head_.erase(0, count);
        return count;
    }

  private:
    void look() {
        constexpr std::size_t mark_bytes = 3;
        looked_ = true;
        std::array<char, mark_bytes> bytes{};
        for (std::size_t count = 1; count > 0 && head_.size() < mark_bytes;) {
            count = source_(bytes.data(), mark_bytes - head_.size());
            head_.append(bytes.data(), count);
        }
        head_.erase(0, head_.size() - without_byte_order_mark(head_).size());
    }

    ByteSource source_;
    std::string head_;  // what was looked at and is still to be read
    bool looked_ = false;
};

}  // namespace

ByteSource inflated(ByteSource source, const std::string& file) {
    auto inflater = std::make_shared<Inflater>(std::move(source), file);
    auto text = std::make_shared<AfterMark>(
        [inflater](char* buffer, std::size_t size) { return inflater->read(buffer, size); });
    return [text](char* buffer, std::size_t size) { return text->read(buffer, size); };
}

}  // namespace bucketwise
