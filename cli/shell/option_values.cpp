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
        for (const std::string& text : row->value.takes == OptionValue::Takes::none
                                           ? std::vector<std::string>{""}
                                           : texts_value(values, name)) {
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

// --- values by name ---

void add_unbound(po::options_description& options, std::vector<OptionText> rows) {
    for (OptionText& row : rows) {
        row.value.read = {};
    }
    add_options(options, rows);
}

bool is_typed(const po::variables_map& values, const char* option) {
    return values.count(option) != 0 && !values[option].defaulted();
}

std::optional<std::string> first_typed(const po::variables_map& values,
                                       std::initializer_list<const char*> options) {
    const auto* const found =
        std::ranges::find_if(options, [&](const char* option) { return is_typed(values, option); });
    return found == options.end() ? std::nullopt : std::optional<std::string>(*found);
}

const std::string& text_value(const po::variables_map& values, const char* option) {
    return values[option].as<std::string>();
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

std::vector<std::string> list_value(const po::variables_map& values, const char* option) {
    return split_at_commas(text_value(values, option));
}

std::int64_t whole_number(const po::variables_map& values, const char* option, WholeNumbers range) {
    return range(text_value(values, option), fmt::format("--{}", option));
}

std::optional<std::int64_t> optional_number(const po::variables_map& values, const char* option,
                                            WholeNumbers range) {
    return values.count(option) == 0 ? std::nullopt
                                     : std::optional(whole_number(values, option, range));
}

std::vector<std::int64_t> whole_numbers(const po::variables_map& values, const char* option,
                                        WholeNumbers range) {
    return ListOf{range}(text_value(values, option), fmt::format("--{}", option));
}

std::uint64_t seed_value(const po::variables_map& values) {
    return read_seed(text_value(values, "seed"), "--seed");
}

}  // namespace bucketwise
