// Bad input throws one error type that names the place.
#pragma once

#include <stdexcept>
#include <string>

namespace bucketwise {

// what() is one line: "FILE: /json/pointer: expected ..., got ...". The pointer is empty for the
// whole document (RFC 6901) and is then left out of the line.
class InputError : public std::runtime_error {
  public:
    InputError(std::string file, std::string pointer, std::string expected, std::string got)
        : std::runtime_error(file + ": " + (pointer.empty() ? "" : pointer + ": ") + "expected " +
                             expected + ", got " + got),
          file_(std::move(file)),
          pointer_(std::move(pointer)),
          expected_(std::move(expected)),
          got_(std::move(got)) {}

    [[nodiscard]] const std::string& file() const { return file_; }
    [[nodiscard]] const std::string& pointer() const { return pointer_; }
    [[nodiscard]] const std::string& expected() const { return expected_; }
    [[nodiscard]] const std::string& got() const { return got_; }

  private:
    std::string file_;
    std::string pointer_;
    std::string expected_;
    std::string got_;
};

}  // namespace bucketwise
