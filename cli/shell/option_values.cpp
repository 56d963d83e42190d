#include "cli/shell/option_values.h"

#include <charconv>

#include <fmt/format.h>

namespace bucketwise {

namespace po = boost::program_options;

std::int64_t whole_number(const std::string& text, const std::string& option, WholeNumbers range) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    if (!whole || value < range.lowest || value > range.highest) {
        throw InputError(option, "",
                         fmt::format("a whole number from {} to {}", range.lowest, range.highest),
                         "\"" + text + "\"");
    }
    return value;
}

std::int64_t whole_number(const po::variables_map& values, const char* option, WholeNumbers range) {
    return whole_number(values[option].as<std::string>(), fmt::format("--{}", option), range);
}

std::string text_or_empty(const po::variables_map& values, const char* option) {
    return values.count(option) == 0 ? "" : values[option].as<std::string>();
}

}  // namespace bucketwise
