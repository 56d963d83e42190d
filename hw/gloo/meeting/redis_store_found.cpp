#include <gloo/rendezvous/redis_store.h>
#include <sys/time.h>

#include <cerrno>
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

struct ReplyDeleter {
    void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

// Where a limit has passed hiredis has the kernel's words, "Resource temporarily unavailable".
std::string reason_of(const redisContext& connection) {
    const bool timed_out =
        connection.err == REDIS_ERR_IO && (errno == EAGAIN || errno == ETIMEDOUT);
    return timed_out ? "whoever listens there said nothing for " +
                           std::to_string(answer_limit.tv_sec) + " s"
                     : connection.errstr;
}

// Why nobody answers; empty: a Redis server does.
std::string silence_of(const RedisPlace& place) {
    const std::unique_ptr<redisContext, ConnectionDeleter> connection(
        redisConnectWithTimeout(place.host.c_str(), place.port, answer_limit));
    if (!connection) {
        return "out of memory";
    }
    if (connection->err != 0) {
        return reason_of(*connection);
    }
    redisSetTimeout(connection.get(), answer_limit);
    const std::unique_ptr<redisReply, ReplyDeleter> reply(
        static_cast<redisReply*>(redisCommand(connection.get(), "PING")));
    if (!reply) {
        return reason_of(*connection);
    }
    return reply->type == REDIS_REPLY_ERROR ? std::string(reply->str, reply->len) : "";
}

// Gloo's store loses its connection's memory when no server answers, and what listens there may be
// no Redis, so ask before it does.
void check_answers(const RedisPlace& place, const std::string& text) {
    if (const std::string reason = silence_of(place); !reason.empty()) {
        throw std::runtime_error(text + ": no Redis server answers: " + reason);
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
    explicit RedisKeyValueStore(const std::string& place)
        : StoreOfGloo(place), server_(parse_place(place)) {
        check_answers(server_, place);
        with_store_errors([&] { store_ = std::make_unique<LimitedRedisStore>(server_); });
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
    void explain_failure() override { check_answers(server_, place_); }

    RedisPlace server_;
    std::vector<std::string> own_keys_;
};

}  // namespace

std::unique_ptr<KeyValueStore> open_redis_store(const std::string& place) {
    return std::make_unique<RedisKeyValueStore>(place);
}

}  // namespace bucketwise
