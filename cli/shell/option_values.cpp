#include "cli/shell/option_values.h"

#include <charconv>

#include <fmt/format.h>

namespace bucketwise {

namespace po = boost::program_options;

void add_options(po::options_description& options, const std::vector<OptionText>& texts) {
    for (const auto& [name, text, standard] : texts) {
        if (standard == no_value) {
            options.add_options()(name, text);
        } else if (standard == nullptr) {
            options.add_options()(name, po::value<std::string>(), text);
        } else {
            options.add_options()(name, po::value<std::string>()->default_value(standard), text);
        }
    }
}

bool is_typed(const po::variables_map& values, const char* option) {
    return values.count(option) != 0 && !values[option].defaulted();
}

std::optional<std::string> first_typed(const po::variables_map& values,
                                       std::initializer_list<const char*> options) {
    const auto* const found = std::find_if(options.begin(), options.end(), [&](const char* option) {
        return is_typed(values, option);
    });
    return found == options.end() ? std::nullopt : std::optional<std::string>(*found);
}

std::vector<std::string> split_at_commas(const std::string& text) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    while (begin <= text.size()) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        parts.push_back(text.substr(begin, comma - begin));
        begin = comma + 1;
    }
    return parts;
}

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
    return whole_number(text_value(values, option), fmt::format("--{}", option), range);
}

std::vector<std::int64_t> whole_numbers(const po::variables_map& values, const char* option,
                                        WholeNumbers range) {
    std::vector<std::int64_t> numbers;
    for (const std::string& text : list_value(values, option)) {
        numbers.push_back(whole_number(text, fmt::format("--{}", option), range));
    }
    return numbers;
}

std::uint64_t seed_value(const po::variables_map& values) {
    return static_cast<std::uint64_t>(whole_number(values, "seed", {0, std::int64_t{1} << 50}));
}

std::string text_or_empty(const po::variables_map& values, const char* option) {
    return values.count(option) == 0 ? "" : text_value(values, option);
}

const std::string& text_value(const po::variables_map& values, const char* option) {
    return values[option].as<std::string>();
}

std::vector<std::string> list_value(const po::variables_map& values, const char* option) {
    return split_at_commas(text_value(values, option));
}

}  // namespace bucketwise
