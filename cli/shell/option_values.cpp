#include "cli/shell/option_values.h"

#include <array>
#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/exit_codes.h"

namespace bucketwise {

namespace po = boost::program_options;

void add_options(po::options_description& options, const std::vector<OptionText>& texts) {
    for (const auto& [name, text, value] : texts) {
        if (value.takes == OptionValue::Takes::none) {
            options.add_options()(name, text);
        } else if (value.takes == OptionValue::Takes::many) {
            options.add_options()(name, po::value<std::vector<std::string>>(), text);
        } else if (value.standard == nullptr) {
            options.add_options()(name, po::value<std::string>(), text);
        } else {
            options.add_options()(name, po::value<std::string>()->default_value(value.standard),
                                  text);
        }
    }
}

po::options_description options_of(const std::vector<OptionText>& texts) {
    constexpr unsigned columns = 100;
    po::options_description options("options", columns);
    add_options(options, texts);
    add_options(options, {help_option});
    return options;
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

std::optional<std::int64_t> optional_number(const po::variables_map& values, const char* option,
                                            WholeNumbers range) {
    return values.count(option) == 0 ? std::nullopt
                                     : std::optional(whole_number(values, option, range));
}

std::vector<std::int64_t> whole_numbers(const po::variables_map& values, const char* option,
                                        WholeNumbers range) {
    std::vector<std::int64_t> numbers;
    for (const std::string& text : list_value(values, option)) {
        numbers.push_back(whole_number(text, fmt::format("--{}", option), range));
    }
    return numbers;
}

double seconds_value(const po::variables_map& values, const char* option, double least,
                     double most) {
    struct TimeUnit {
        std::string_view name;
        double seconds;
    };
    constexpr std::array<TimeUnit, 6> units{
        {{"s", 1}, {"sec", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"ms", 1e-3}}};
    const std::string& text = text_value(values, option);
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    const std::string_view unit =
        std::string_view(text).substr(static_cast<std::size_t>(end - text.data()));
    for (const TimeUnit& known : units) {
        const double seconds = number * known.seconds;
        if (error == std::errc{} && unit == known.name && seconds >= least && seconds <= most) {
            return seconds;
        }
    }
    throw InputError(
        std::string("--") + option, "",
        fmt::format("a time of {:g} s to {:g} h, such as 90s, 2min or 1h", least, most / 3600),
        "\"" + text + "\"");
}

double share_value(const po::variables_map& values, const char* option, const NumberRange& range) {
    constexpr double percent = 0.01;
    const std::string& text = text_value(values, option);
    const std::string_view number = std::string_view(text).substr(0, text.find('%'));
    const std::optional<double> share = number_in(trimmed(number));
    if (text.size() != number.size() + 1 || !share || *share * percent < range.lowest ||
        *share * percent > range.highest) {
        throw InputError(std::string("--") + option, "",
                         fmt::format("a share of {:g}% to {:g}%, such as 2%",
                                     range.lowest / percent, range.highest / percent),
                         "\"" + text + "\"");
    }
    return *share * percent;
}

std::uint64_t seed_value(const po::variables_map& values) {
    return static_cast<std::uint64_t>(whole_number(values, "seed", {0, std::int64_t{1} << 50}));
}

std::string text_or_empty(const po::variables_map& values, const char* option) {
    return values.count(option) == 0 ? "" : text_value(values, option);
}

std::vector<std::string> texts_value(const po::variables_map& values, const char* option) {
    if (values.count(option) == 0) {
        return {};
    }
    const boost::any& value = values[option].value();
    const auto* text = boost::any_cast<std::string>(&value);
    return text != nullptr ? std::vector{*text} : boost::any_cast<std::vector<std::string>>(value);
}

const std::string& text_value(const po::variables_map& values, const char* option) {
    return values[option].as<std::string>();
}

std::vector<std::string> list_value(const po::variables_map& values, const char* option) {
    return split_at_commas(text_value(values, option));
}

void check_one_printed(const po::variables_map& values, const std::string& command,
                       const char* output, const char* other) {
    if (text_or_empty(values, output) == "-" && text_or_empty(values, other) == "-") {
        throw UsageError{
            fmt::format("{}: expected at most one of --{} and --{} on standard output, got both",
                        command, output, other)};
    }
}

}  // namespace bucketwise
