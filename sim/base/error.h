// Bad input throws one error type that names the place.
#pragma once

#include <stdexcept>
#include <string>

#include "sim/text/foreign_text.h"

namespace bucketwise {

// what() is one line: "FILE: /json/pointer: expected ..., got ...", whatever stands in what was
// read, and no longer than somebody reads. The pointer is empty for the whole document (RFC 6901)
// and is then left out of the line.
class InputError : public std::runtime_error {
  public:
    InputError(std::string file, std::string pointer, std::string expected, std::string got)
        : std::runtime_error(shown_line(file, longest_path) + ": " +
                             (pointer.empty() ? "" : shown_line(pointer, longest_part) + ": ") +
                             "expected " + shown_line(expected, longest_list) + ", got " +
                             shown_line(got, longest_part)),
          file_(std::move(file)),
          pointer_(std::move(pointer)),
          expected_(std::move(expected)),
          got_(std::move(got)) {}

    [[nodiscard]] const std::string& file() const { return file_; }
    [[nodiscard]] const std::string& pointer() const { return pointer_; }
    [[nodiscard]] const std::string& expected() const { return expected_; }
    [[nodiscard]] const std::string& got() const { return got_; }

  private:
    static constexpr std::size_t longest_path = 1000;
    static constexpr std::size_t longest_list = 2000;  // of what is possible
    static constexpr std::size_t longest_part = 500;

    std::string file_;
    std::string pointer_;
    std::string expected_;
    std::string got_;
};

}  // namespace bucketwise
