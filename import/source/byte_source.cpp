#include "import/source/byte_source.h"

#include <exception>
#include <future>
#include <memory>
#include <utility>

namespace bucketwise {
namespace {

struct Ahead {
    ByteSource source;
    std::string block = {};  // given out up to `at`
    std::size_t at = 0;
    std::exception_ptr failure = {};     // of the source, thrown once the bytes before it are read
    std::future<std::string> next = {};  // last, as it uses the source

    std::size_t read(char* buffer, std::size_t size) {
        if (at == block.size()) {
            if (!next.valid()) {
                start();
            }
            block = next.get();
            at = 0;
            if (!block.empty()) {
                start();
            }
        }
        const std::size_t count = block.copy(buffer, size, at);
        at += count;
        return count;
    }

    // Fills a block, as a source may give few bytes at a time.
    void start() {
        next = std::async(std::launch::async, [this] {
            if (failure) {
                std::rethrow_exception(failure);
            }
            constexpr std::size_t block_bytes = std::size_t{1} << 20;
            std::string bytes(block_bytes, '\0');
            std::size_t have = 0;
            try {
                for (std::size_t got = 1; got > 0 && have < bytes.size(); have += got) {
                    got = source(bytes.data() + have, bytes.size() - have);
                }
            } catch (...) {
                failure = std::current_exception();
                if (have == 0) {
                    throw;
                }
            }
            bytes.resize(have);
            return bytes;
        });
    }
};

}  // namespace

Peeked peeked(ByteSource source, std::size_t count) {
    std::string begin(count, '\0');
    std::size_t have = 0;
    for (std::size_t got = 1; got > 0 && have < count; have += got) {
        got = source(begin.data() + have, count - have);
    }
    begin.resize(have);
    auto all = [source = std::move(source), left = begin](char* buffer, std::size_t size) mutable {
        if (left.empty()) {
            return source(buffer, size);
        }
        const std::size_t copied = left.copy(buffer, size);
        left.erase(0, copied);
        return copied;
    };
    return {std::move(begin), std::move(all)};
}

ByteSource read_ahead(ByteSource source) {
    auto ahead = std::make_shared<Ahead>(Ahead{.source = std::move(source)});
    return [ahead](char* buffer, std::size_t size) { return ahead->read(buffer, size); };
}

}  // namespace bucketwise
