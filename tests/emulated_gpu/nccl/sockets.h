// Local sockets between the ranks of a communicator.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace bucketwise::emulated {

class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() { close(); }
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;

    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] bool is_open() const { return number_ >= 0; }
    void close();

  private:
    int number_ = -1;
};

// The communicator's answer to a query for errors.
struct Failure {
    ncclResult_t result = ncclSuccess;
    std::string message;
};

// Not blocking. How many bytes went, 0 when it would block; nothing when the other end is gone.
std::optional<std::size_t> send_some(const Descriptor& socket, const void* data, std::size_t bytes);
std::optional<std::size_t> receive_some(const Descriptor& socket, void* data, std::size_t bytes);

using Deadline = std::chrono::steady_clock::time_point;

// All of it, or false when the other end is gone or the time is over.
bool send_all(const Descriptor& socket, const void* data, std::size_t bytes, Deadline deadline);
bool receive_all(const Descriptor& socket, void* data, std::size_t bytes, Deadline deadline);

// `name` in the abstract namespace, which leaves no file behind. Not open on failure; accepting and
// connecting wait until the deadline.
Descriptor listen_at(const std::string& name);
Descriptor accept_from(const Descriptor& listener, Deadline deadline);
Descriptor connect_to(const std::string& name, Deadline deadline);

}  // namespace bucketwise::emulated
