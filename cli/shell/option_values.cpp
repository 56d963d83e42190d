#include "cli/shell/option_values.h"

#include <array>
#include <charconv>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/exit_codes.h"

namespace bucketwise {

namespace po = boost::program_options;

namespace {

// Boost's description of a value, with the row that it came from.
struct WithRow {
    OptionText row;
};
template <typename Semantic>
struct SemanticOf : Semantic, WithRow {
    template <typename... Arguments>
    explicit SemanticOf(const OptionText& from, Arguments... arguments)
        : Semantic(arguments...), WithRow{from} {}
};

po::value_semantic* semantic_of(const OptionText& row) {
    using Texts = std::vector<std::string>;
    switch (row.value.takes) {
        case OptionValue::Takes::none:
            return new SemanticOf<po::untyped_value>(row, true);
        case OptionValue::Takes::many:
            return new SemanticOf<po::typed_value<Texts>>(row, static_cast<Texts*>(nullptr));
        case OptionValue::Takes::one:
            break;
    }
    auto* const one =
        new SemanticOf<po::typed_value<std::string>>(row, static_cast<std::string*>(nullptr));
    return row.value.standard.empty() ? one : one->default_value(row.value.standard);
}

}  // namespace

std::int64_t WholeNumbers::operator()(const std::string& text, const std::string& option) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    if (!whole || value < lowest || value > highest) {
        throw InputError(option, "", fmt::format("a whole number from {} to {}", lowest, highest),
                         "\"" + text + "\"");
    }
    return value;
}

std::uint64_t read_seed(const std::string& text, const std::string& option) {
    return static_cast<std::uint64_t>(WholeNumbers{0, std::int64_t{1} << 50}(text, option));
}

double TimeInSeconds::operator()(const std::string& text, const std::string& option) const {
    constexpr std::array<std::pair<std::string_view, double>, 6> units{
        {{"s", 1}, {"sec", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"ms", 1e-3}}};
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    const std::string_view unit =
        std::string_view(text).substr(static_cast<std::size_t>(end - text.data()));
    for (const auto& [name, factor] : units) {
        const double seconds = number * factor;
        if (error == std::errc{} && unit == name && seconds >= least && seconds <= most) {
            return seconds;
        }
    }
    throw InputError(
        option, "",
        fmt::format("a time of {:g} s to {:g} h, such as 90s, 2min or 1h", least, most / 3600),
        "\"" + text + "\"");
}

double Percentage::operator()(const std::string& text, const std::string& option) const {
    constexpr double percent = 0.01;
    const std::string_view number = std::string_view(text).substr(0, text.find('%'));
    const std::optional<double> share = number_in(trimmed(number));
    if (text.size() != number.size() + 1 || !share || *share * percent < range.lowest ||
        *share * percent > range.highest) {
        throw InputError(option, "",
                         fmt::format("a share of {:g}% to {:g}%, such as 2%",
                                     range.lowest / percent, range.highest / percent),
                         "\"" + text + "\"");
    }
    return *share * percent;
}

void add_options(po::options_description& options, const std::vector<OptionText>& rows) {
    for (const OptionText& row : rows) {
        options.add_options()(row.name, semantic_of(row), row.text.c_str());
    }
}

po::options_description options_of(const std::vector<OptionText>& rows,
                                   const std::vector<OptionText>& more,
                                   const std::vector<OptionText>& last) {
    constexpr unsigned columns = 100;
    po::options_description options("options", columns);
    for (const auto* group : {&rows, &more, &last}) {
        add_options(options, *group);
    }
    add_options(options, {help_option});
    return options;
}

const OptionText* row_of(const po::option_description& option) {
    const auto* const known = dynamic_cast<const WithRow*>(option.semantic().get());
    return known == nullptr ? nullptr : &known->row;
}

void fill_fields(const po::options_description& options, const po::variables_map& values) {
    for (const auto& option : options.options()) {
        const OptionText* const row = row_of(*option);
        const char* const name = option->long_name().c_str();
        const bool is_given = values.count(name) != 0;
        if (row == nullptr || !row->value.read || !is_given ||
            (!row->value.fills_default && values[name].defaulted())) {
            continue;
        }
        std::vector<std::string> texts{""};  // of a flag
        if (row->value.takes == OptionValue::Takes::many) {
            texts = values[name].as<std::vector<std::string>>();
        } else if (row->value.takes == OptionValue::Takes::one) {
            texts = {values[name].as<std::string>()};
        }
        for (const std::string& text : texts) {
            row->value.read(text, fmt::format("--{}", name));
        }
    }
}

void check_one_printed(const std::string& command, const std::string& options,
                       const std::optional<std::string>& output,
                       const std::optional<std::string>& other) {
    if (output == "-" && other == "-") {
        throw UsageError{fmt::format("{}: expected at most one of {} on standard output, got both",
                                     command, options)};
    }
}

}  // namespace bucketwise
