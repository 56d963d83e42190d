#include <gloo/rendezvous/redis_store.h>
#include <sys/time.h>

#include <charconv>

#include "hw/gloo/meeting/store.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

struct RedisPlace {
    std::string host;
    int port = 0;
};

// "redis://HOST:PORT"; a numeric IPv6 host stands in brackets (RFC 3986, section 3.2.2).
RedisPlace parse_place(const std::string& place) {
    const auto refuse = [&] { throw InputError(place, "", "redis://HOST:PORT", "another form"); };
    const std::string authority = place.substr(redis_scheme.size());
    const std::size_t colon = authority.rfind(':');
    if (colon == std::string::npos || colon == 0) {
        refuse();
    }
    RedisPlace parsed{authority.substr(0, colon), 0};
    const char* const end = authority.data() + authority.size();
    const auto [rest, failure] =
        std::from_chars(authority.data() + colon + 1, end, parsed.port, 10);
    if (failure != std::errc{} || rest != end || parsed.port < 1 || parsed.port > 65535) {
        refuse();
    }
    if (parsed.host.front() == '[' && parsed.host.back() == ']') {
        parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    } else if (parsed.host.find(':') != std::string::npos) {
        refuse();
    }
    return parsed;
}

// A server that was stopped must not hold up a rank beyond its deadline: without a limit hiredis
// waits for an answer for ever. Gloo connects with the same limit.
constexpr timeval answer_limit{2, 0};

struct ConnectionDeleter {
    void operator()(redisContext* connection) const { redisFree(connection); }
};

// Gloo's store loses its connection's memory when no server answers, so ask before it does.
void check_answers(const RedisPlace& place, const std::string& text) {
    const std::unique_ptr<redisContext, ConnectionDeleter> connection(
        redisConnectWithTimeout(place.host.c_str(), place.port, answer_limit));
    if (!connection || connection->err != 0) {
        throw std::runtime_error(text + ": no Redis server answers: " +
                                 (connection ? connection->errstr : "out of memory"));
    }
}

class LimitedRedisStore final : public gloo::rendezvous::RedisStore {
  public:
    explicit LimitedRedisStore(const RedisPlace& place) : RedisStore(place.host, place.port) {
        redisSetTimeout(redis_, answer_limit);
    }

    void remove(const std::string& key) {
        freeReplyObject(redisCommand(redis_, "DEL %b", key.data(), key.size()));
    }
};

class RedisKeyValueStore final : public StoreOfGloo<LimitedRedisStore> {
  public:
    explicit RedisKeyValueStore(const std::string& place) : StoreOfGloo(place) {
        const RedisPlace parsed = parse_place(place);
        check_answers(parsed, place);
        with_store_errors([&] { store_ = std::make_unique<LimitedRedisStore>(parsed); });
    }

    void set(const std::string& key, const std::vector<char>& value) override {
        StoreOfGloo::set(key, value);
        own_keys_.push_back(key);
    }

    void forget_own_keys() noexcept override {
        for (const std::string& key : own_keys_) {
            store_->remove(key);
        }
    }

    void check_usable() override {}  // has() fails when the server is gone

  private:
    std::vector<std::string> own_keys_;
};

}  // namespace

std::unique_ptr<KeyValueStore> open_redis_store(const std::string& place) {
    return std::make_unique<RedisKeyValueStore>(place);
}

}  // namespace bucketwise
