#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <latch>
#include <optional>
#include <sstream>
#include <thread>

#include "hw/gloo/connection.h"
#include "hw/launch/rank_identity.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using namespace std::chrono_literals;
using testing::contains;
using testing::RankOutcome;

std::optional<std::string> find_program(const std::string& name) {
    std::istringstream folders(environment_variable("PATH").value_or(""));
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::string program = folder + "/" + name;
        if (::access(program.c_str(), X_OK) == 0) {
            return program;
        }
    }
    return std::nullopt;
}

// All of Redis's programs but the client are one executable, which looks at the name it was started
// by. Debian's redis-tools brings it without the server's name, and without a service that starts.
std::optional<std::string> find_server() {
    const std::optional<std::string> server = find_program("redis-server");
    return server ? server : find_program("redis-check-rdb");
}

class Socket {
  public:
    Socket() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    }
    ~Socket() { ::close(descriptor_); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    int bind_to_free_port() {
        socklen_t size = sizeof(address_);
        const bool bound =
            ::bind(descriptor_, reinterpret_cast<sockaddr*>(&address_), size) == 0 &&
            ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address_), &size) == 0;
        return bound ? ::ntohs(address_.sin_port) : 0;
    }

    void listen() { REQUIRE(::listen(descriptor_, 8) == 0); }

    bool connects_to(int port) {
        address_.sin_port = ::htons(static_cast<std::uint16_t>(port));
        return ::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address_),
                         sizeof(address_)) == 0;
    }

  private:
    int descriptor_;
    sockaddr_in address_{};
};

// Free when this returns; somebody else may take it before it is used, so whoever uses it tries
// more than one.
int free_port() {
    return Socket().bind_to_free_port();
}

class RedisServer {
  public:
    explicit RedisServer(const std::string& program) {
        for (int attempt = 0; attempt < 5 && port_ == 0; ++attempt) {
            start(program, free_port());
        }
    }
    ~RedisServer() { end(); }
    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;

    [[nodiscard]] bool runs() const { return port_ != 0; }
    [[nodiscard]] std::string place() const { return "redis://127.0.0.1:" + std::to_string(port_); }

    void end() {
        if (port_ != 0) {
            ::kill(process_, SIGTERM);
            ::waitpid(process_, nullptr, 0);
            port_ = 0;
        }
    }

  private:
    // Leaves port_ at 0 if the server ends before it answers.
    void start(const std::string& program, int port) {
        std::vector<std::string> words{"redis-server",
                                       "--port",
                                       std::to_string(port),
                                       "--bind",
                                       "127.0.0.1",
                                       "--save",
                                       "",
                                       "--dir",
                                       directory_.path(),
                                       "--logfile",
                                       "redis.log"};
        std::vector<char*> arguments;
        for (std::string& word : words) {
            arguments.push_back(word.data());
        }
        arguments.push_back(nullptr);
        if (::posix_spawn(&process_, program.c_str(), nullptr, nullptr, arguments.data(),
                          environ) != 0) {
            return;
        }
        while (!Socket().connects_to(port)) {
            if (::waitpid(process_, nullptr, WNOHANG) != 0) {
                return;
            }
            std::this_thread::yield();
        }
        port_ = port;
    }

    testing::TemporaryDirectory directory_;
    pid_t process_ = -1;
    int port_ = 0;
};

TEST_CASE("ranks meet through a Redis server") {
    const std::optional<std::string> program = find_server();
    if (!program) {
        WARN("skipped: no redis-server (package redis-server or redis-tools) on PATH");
        return;
    }
    RedisServer server(*program);
    REQUIRE(server.runs());
    const std::string place = server.place();
    const auto run = [&] {
        return testing::on_threads(3, [&](int rank) {
            GlooConnection connection(testing::meeting_in(place, rank, 3));
            float value = 1;
            connection.communicator(AllReduceImplementation::ring)
                .all_reduce_sum(&value, 1, DType::float32);
            if (value != 3) {
                throw std::logic_error("a wrong sum");
            }
        });
    };
    const std::vector<RankOutcome> first = run();
    if (contains(testing::first_reason(first), "this build cannot use Redis")) {
        WARN("skipped: " + testing::first_reason(first));
        return;
    }
    CHECK(testing::first_reason(first).empty());
    CHECK(testing::first_reason(run()).empty());  // nothing was left behind

    MeetingPoint alone = testing::meeting_in(place, 1, 2);
    alone.job = "alone";
    alone.deadline = 200ms;
    CHECK(testing::outcome_of([&] { const GlooConnection connection(alone); }).reason ==
          place + ": rank 0 of 2 did not arrive within 200 ms");
    CHECK(contains(testing::outcome_of([&] { const GlooConnection connection(alone); }).reason,
                   "has been here already"));

    RankOutcome outcome;
    std::latch started(1);
    std::thread waiting([&] {
        started.count_down();
        MeetingPoint meeting = testing::meeting_in(place, 0, 2);
        meeting.job = "abandoned";
        outcome = testing::outcome_of([&] { const GlooConnection connection(meeting); });
    });
    started.wait();
    server.end();
    waiting.join();
    CHECK(outcome.ending == testing::Ending::other_failure);
    CHECK(contains(outcome.reason, place + ": "));
}

TEST_CASE(
    "who listens where a Redis server should and says nothing is waited for no longer than a "
    "limit") {
    Socket silent;
    const std::string place = "redis://127.0.0.1:" + std::to_string(silent.bind_to_free_port());
    silent.listen();
    const RankOutcome outcome = testing::outcome_of(
        [&] { const GlooConnection connection(testing::meeting_in(place, 0, 1)); });
    if (contains(outcome.reason, "this build cannot use Redis")) {
        WARN("skipped: " + outcome.reason);
        return;
    }
    CHECK(outcome.ending == testing::Ending::other_failure);
    CHECK(outcome.reason ==
          place + ": no Redis server answers: whoever listens there said nothing for 2 s");
}

TEST_CASE("a Redis server that nobody runs, or that is named badly, is refused by its name") {
    const std::string nobody = "redis://127.0.0.1:" + std::to_string(free_port());
    for (const std::string& place :
         {nobody, std::string("redis://"), std::string("redis://host"),
          std::string("redis://:6379"), std::string("redis://host:0"),
          std::string("redis://host:65536"), std::string("redis://host:12x"),
          std::string("redis://::1:6379")}) {
        const RankOutcome outcome = testing::outcome_of(
            [&] { const GlooConnection connection(testing::meeting_in(place, 0, 1)); });
        CAPTURE(place, outcome.reason);
        CHECK(outcome.ending == testing::Ending::other_failure);
        CHECK(contains(outcome.reason, place + ": "));
    }
}

}  // namespace
}  // namespace bucketwise
