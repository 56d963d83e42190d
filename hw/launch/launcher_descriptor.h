// A file descriptor that closes itself, and what the launcher opens.
#pragma once

#include <utility>

#include <unistd.h>

namespace bucketwise {

class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() { reset(); }
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }

    [[nodiscard]] int get() const { return number_; }
    [[nodiscard]] bool is_open() const { return number_ >= 0; }
    void reset() {
        if (is_open()) {
            ::close(std::exchange(number_, -1));
        }
    }

  private:
    int number_ = -1;
};

struct Pipe {
    Descriptor read;
    Descriptor write;
};

// Neither end blocks, neither survives exec, and neither takes the number of a standard stream,
// should this process have been started without. Throws std::runtime_error.
Pipe open_pipe();

// For reading, numbered and closed like the pipes. Throws std::runtime_error.
Descriptor open_null();

}  // namespace bucketwise
