#include "import/source/read_ahead.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>

namespace bucketwise {
namespace {

constexpr std::size_t ahead_block_bytes = std::size_t{1} << 18;
constexpr std::size_t most_blocks_ahead = 8;

class ReadAhead {
  public:
    explicit ReadAhead(ByteSource source)
        : source_(std::move(source)), thread_([this] { read_all(); }) {}
    ~ReadAhead() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    std::size_t read(char* buffer, std::size_t size) {
        if (at_ == block_.size() && !next_block()) {
            return 0;
        }
        const std::size_t count = std::min(size, block_.size() - at_);
        std::memcpy(buffer, block_.data() + at_, count);
        at_ += count;
        return count;
    }

  private:
    // --- of the thread that asks ---

    bool next_block() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !blocks_.empty() || ended_; });
        if (blocks_.empty()) {
            if (error_) {
                std::rethrow_exception(error_);
            }
            return false;
        }
        block_ = std::move(blocks_.front());
        at_ = 0;
        blocks_.pop();
        lock.unlock();
        changed_.notify_all();
        return true;
    }

    // --- of the thread that reads ---

    void read_all() {
        std::exception_ptr error;
        try {
            while (wait_for_room() && read_block()) {
            }
        } catch (...) {
            error = std::current_exception();
        }
        {
            const std::lock_guard lock(mutex_);
            ended_ = true;
            error_ = std::move(error);
        }
        changed_.notify_all();
    }

    // False: nobody asks any more.
    bool wait_for_room() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return blocks_.size() < most_blocks_ahead || stopped_; });
        return !stopped_;
    }

    // What the source gives at once. False at the end.
    bool read_block() {
        std::string block(ahead_block_bytes, '\0');
        block.resize(source_(block.data(), block.size()));
        if (block.empty()) {
            return false;
        }
        {
            const std::lock_guard lock(mutex_);
            blocks_.push(std::move(block));
        }
        changed_.notify_all();
        return true;
    }

    ByteSource source_;
    std::string block_;  // of the thread that asks, given out until at_
    std::size_t at_ = 0;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::queue<std::string> blocks_;
    bool ended_ = false;    // the source
    bool stopped_ = false;  // asking
    std::exception_ptr error_;
    std::thread thread_;  // last, as it uses all others
};

}  // namespace

ByteSource read_ahead(ByteSource source) {
    auto reader = std::make_shared<ReadAhead>(std::move(source));
    return [reader](char* buffer, std::size_t size) { return reader->read(buffer, size); };
}

}  // namespace bucketwise
