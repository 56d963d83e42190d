#include "sim/text/passed_on.h"

#include <algorithm>

namespace bucketwise {
namespace {

// Where a word's value begins that may be a path or a list of them. `before`: the word before it.
std::size_t value_place(std::string_view word, std::string_view before) {
    const auto after = [&](std::size_t equals) {
        return equals == std::string_view::npos ? word.size() : equals + 1;
    };
    for (const std::string_view assigns : {"--set", "--vary"}) {
        if (before == assigns) {
            return after(word.find('='));
        }
        const std::string_view rest = word.substr(std::min(assigns.size(), word.size()));
        if (word.starts_with(assigns) && rest.starts_with('=')) {
            return after(word.find('=', assigns.size() + 1));
        }
    }
    if (word.starts_with("--")) {
        return after(word.find('='));
    }
    constexpr std::size_t short_option = 2;  // "-o/a/file"
    return word.starts_with('-') ? std::min(short_option, word.size()) : 0;
}

// A quote, as JSON has it, may stand before a path.
std::string without_folders(std::string_view value) {
    std::string text;
    while (true) {
        const std::size_t comma = std::min(value.find(','), value.size());
        const std::string_view part = value.substr(0, comma);
        const std::size_t quote = part.starts_with('"') ? 1 : 0;
        const std::string_view path = part.substr(quote);
        const bool tells = path.starts_with('/') && !path.starts_with("/dev/");
        text += tells ? std::string(part.substr(0, quote)) + file_name(path) : std::string(part);
        if (comma == value.size()) {
            return text;
        }
        text += ',';
        value.remove_prefix(comma + 1);
    }
}

std::string shell_word(std::string_view word) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) {
        return std::string(word);
    }
    std::string quoted = "'";
    for (const char c : word) {
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return quoted + "'";
}

}  // namespace

std::string file_name(std::string_view path) {
    const std::size_t last = path.find_last_not_of('/');
    const std::string_view trimmed = path.substr(0, last == std::string_view::npos ? 1 : last + 1);
    const std::size_t slash = trimmed.rfind('/');
    const bool is_root = trimmed.size() < 2;
    return std::string(is_root || slash == std::string_view::npos ? trimmed
                                                                  : trimmed.substr(slash + 1));
}

std::vector<std::string> passed_on_command(const std::vector<std::string>& words) {
    std::vector<std::string> passed_on;
    std::string_view before;
    for (const std::string& word : words) {
        const std::size_t place = value_place(word, before);
        passed_on.push_back(word.substr(0, place) +
                            without_folders(std::string_view(word).substr(place)));
        before = word;
    }
    return passed_on;
}

std::string shell_line(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) {
        if (!line.empty()) {
            line += ' ';
        }
        line += shell_word(word);
    }
    return line;
}

}  // namespace bucketwise
