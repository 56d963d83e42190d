#include "hw/gloo/meeting/peer_failure.h"

#include <cctype>

namespace bucketwise {
namespace {

bool is_space(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
}

std::string on_one_line(std::string_view text) {
    std::string line;
    for (const char c : text) {
        if (!is_space(c)) {
            line += c;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    while (!line.empty() && line.back() == ' ') {
        line.pop_back();
    }
    return line;
}

// The length of a leading "[enforce fail at /build/gloo/x.cc:81] " or "[./gloo/x.cc:81] "; 0 if
// there is none.
std::size_t place_length(const std::string& line) {
    const std::size_t end = line.find("] ");
    if (line.empty() || line.front() != '[' || end == std::string::npos) {
        return 0;
    }
    const bool names_source = line.substr(0, end).find(".cc:") != std::string::npos ||
                              line.substr(0, end).find(".h:") != std::string::npos;
    return names_source ? end + 2 : 0;
}

}  // namespace

std::string tidied(std::string_view gloo_message) {
    std::string line = on_one_line(gloo_message);
    for (std::size_t length = place_length(line); length > 0; length = place_length(line)) {
        line.erase(0, length);
    }
    return line.empty() ? "Gloo gives no reason" : line;
}

}  // namespace bucketwise
