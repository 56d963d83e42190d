// The program's commands, one after the other in one process: starting the program for each of some
// thousand documents takes minutes. A line of the input is a command's arguments, a JSON array. The
// answer is a line of three numbers, the exit code and how many bytes the command wrote to its
// standard output and to its standard error, then these bytes.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace {

// Takes what is written to a standard stream, as long as this lives.
class CapturedStream {
  public:
    explicit CapturedStream(std::FILE* stream)
        : stream_(stream), before_(::dup(::fileno(stream))), captured_(std::tmpfile()) {
        std::fflush(stream_);
        ::dup2(::fileno(captured_), ::fileno(stream_));
    }
    ~CapturedStream() {
        std::fflush(stream_);
        ::dup2(before_, ::fileno(stream_));
        ::close(before_);
        std::fclose(captured_);
    }
    CapturedStream(const CapturedStream&) = delete;
    CapturedStream& operator=(const CapturedStream&) = delete;

    std::string text() {
        std::fflush(stream_);
        std::string text;
        std::array<char, 4096> part{};
        ::lseek(::fileno(captured_), 0, SEEK_SET);
        for (ssize_t got = 1; got > 0;) {
            got = ::read(::fileno(captured_), part.data(), part.size());
            text.append(part.data(), static_cast<std::size_t>(got > 0 ? got : 0));
        }
        return text;
    }

  private:
    std::FILE* stream_;
    int before_;
    std::FILE* captured_;
};

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        const auto arguments = nlohmann::json::parse(line).get<std::vector<std::string>>();
        int exit_code = 0;
        std::string output;
        std::string errors;
        {
            CapturedStream standard_output(stdout);
            CapturedStream standard_error(stderr);
            exit_code = bucketwise::run_command_line(arguments);
            output = standard_output.text();
            errors = standard_error.text();
        }
        std::cout << exit_code << ' ' << output.size() << ' ' << errors.size() << '\n'
                  << output << errors << std::flush;
    }
}
