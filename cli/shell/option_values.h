// Options: a row names an option, describes it, and binds the field that takes its value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/names.h"

namespace bucketwise {

// Candidates that a shell offers for an argument or an option's value.
struct Completions {
    std::vector<std::string> names = {};
    bool files = true;     // files too
    bool several = false;  // a list of names, separated by commas
};

// Exactly the names that name_of() gives.
template <typename Choices>
Completions one_of(const Choices& choices) {
    Completions completions{.files = false};
    for (const auto choice : choices) {
        completions.names.emplace_back(name_of(choice));
    }
    return completions;
}

template <typename Choices>
Completions some_of(const Choices& choices) {
    Completions completions = one_of(choices);
    completions.several = true;
    return completions;
}

// --- readers: the types of values ---
//
// A reader turns typed text into a value and throws InputError, which names the option.

// The choice that name_of() or another name calls `text`. The error lists all.
template <typename Choices>
auto choice_named(const std::string& text, const Choices& choices, const std::string& option) {
    std::string listed;
    std::vector<std::string_view> known;
    for (const auto choice : choices) {
        if (is_called(choice, text)) {
            return choice;
        }
        known.push_back(name_of(choice));
        listed += (listed.empty() ? "" : ", ") + std::string(known.back());
    }
    throw InputError(option, "", "one of " + listed,
                     "\"" + text + "\"" + did_you_mean(text, known));
}

template <typename Choices>
struct Choice {
    Choices choices;
    auto operator()(const std::string& text, const std::string& option) const {
        return choice_named(text, choices, option);
    }
    [[nodiscard]] Completions offers() const { return one_of(choices); }
};
template <typename Choices>
Choice(Choices) -> Choice<Choices>;

struct WholeNumbers {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    std::int64_t operator()(const std::string& text, const std::string& option) const;
};
std::uint64_t read_seed(const std::string& text, const std::string& option);

// A time such as 90s, 2min, 1.5h, in seconds.
struct TimeInSeconds {
    double least = 0;
    double most = 0;
    double operator()(const std::string& text, const std::string& option) const;
};

// A percentage such as 5% or 0.5%, as a share; the range is of shares.
struct Percentage {
    NumberRange range;
    double operator()(const std::string& text, const std::string& option) const;
};

// Values of one reader between commas.
template <typename Read>
struct ListOf {
    Read read;
    auto operator()(const std::string& text, const std::string& option) const {
        std::vector<decltype(read(text, option))> values;
        for (const std::string& part : split_at_commas(text)) {
            values.push_back(read(part, option));
        }
        return values;
    }
};
template <typename Read>
ListOf(Read) -> ListOf<Read>;

// --- rows ---

template <typename Target>
inline constexpr bool is_optional = false;
template <typename Value>
inline constexpr bool is_optional<std::optional<Value>> = true;

// The value behind an option, and the field that takes it.
struct OptionValue {
    enum class Takes { one, none, many };

    OptionValue() = default;
    OptionValue(const char* left_out) : standard(left_out) {}
    OptionValue(Takes what) : takes(what) {}
    OptionValue(bool& flag) : takes(Takes::none) {
        read = [&flag](const std::string&, const std::string&) { flag = true; };
    }
    // The default is what the field holds.
    OptionValue(std::string& field) {
        standard = field;
        read = [&field](const std::string& text, const std::string&) { field = text; };
    }
    OptionValue(std::optional<std::string>& field) {
        read = [&field](const std::string& text, const std::string&) { field = text; };
    }
    // A value each time that the option is repeated.
    OptionValue(std::vector<std::string>& fields) : takes(Takes::many) {
        read = [&fields](const std::string& text, const std::string&) { fields.push_back(text); };
    }
    // The same, of values that `reader` makes.
    template <typename Value, typename Read>
    static OptionValue each(std::vector<Value>& fields, const Read& reader) {
        OptionValue value(Takes::many);
        value.read = [&fields, reader](const std::string& text, const std::string& option) {
            fields.push_back(reader(text, option));
        };
        return value;
    }
    // `left_out`: the default as text. An optional field takes no default, so that it says whether
    // the option was typed.
    template <typename Field, typename Read>
    OptionValue(Field& field, const Read& reader, std::string left_out = {})
        : standard(std::move(left_out)), fills_default(!is_optional<Field>) {
        read = [&field, reader](const std::string& text, const std::string& option) {
            field = reader(text, option);
        };
        if constexpr (requires { reader.offers(); }) {
            offers = reader.offers();
        }
    }

    Takes takes = Takes::one;
    std::string standard = {};  // as --help shows it; empty: none
    bool fills_default = true;
    std::function<void(const std::string& text, const std::string& option)> read = {};
    std::optional<Completions> offers = {};
};

// A row, as --help shows it.
struct OptionText {
    const char* name;  // "output,o"
    std::string text;
    OptionValue value = {};
    std::optional<Completions> offers = {};  // instead of the value's
};
inline const OptionText help_option{"help,h", "show this", OptionValue::Takes::none};

void add_options(boost::program_options::options_description& options,
                 const std::vector<OptionText>& rows);

// The options of a command: rows, and --help.
boost::program_options::options_description options_of(const std::vector<OptionText>& rows,
                                                       const std::vector<OptionText>& more = {},
                                                       const std::vector<OptionText>& last = {});

// The row behind a described option.
const OptionText* row_of(const boost::program_options::option_description& option);

// Fills the fields that rows bind, in the order of the rows.
void fill_fields(const boost::program_options::options_description& options,
                 const boost::program_options::variables_map& values);

// The values in their order, each once.
template <typename Value>
std::vector<Value> each_once(const std::vector<Value>& values) {
    std::vector<Value> once;
    for (const Value& value : values) {
        if (std::find(once.begin(), once.end(), value) == once.end()) {
            once.push_back(value);
        }
    }
    return once;
}

// Most --ranks and --ranks-per-node of importers.
constexpr std::int64_t most_imported_ranks = 1'000'000;

// Throws UsageError where both outputs of a command are "-".
void check_one_printed(const std::string& command, const std::string& options,
                       const std::optional<std::string>& output,
                       const std::optional<std::string>& other);

}  // namespace bucketwise
