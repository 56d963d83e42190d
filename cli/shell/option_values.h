// Options as commands describe and read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/names.h"

namespace bucketwise {

// What follows an option: one value, which may have a standard where the option is left out; none;
// or a value each time that it is repeated.
struct OptionValue {
    enum class Takes { one, none, many };

    constexpr OptionValue() = default;
    constexpr OptionValue(const char* left_out) : standard(left_out) {}
    constexpr OptionValue(Takes what) : takes(what) {}

    Takes takes = Takes::one;
    const char* standard = nullptr;
};
inline constexpr OptionValue no_value = OptionValue::Takes::none;
inline constexpr OptionValue many_values = OptionValue::Takes::many;

// An option, as --help shows it.
struct OptionText {
    const char* name;
    const char* text;
    OptionValue value = {};
};
inline constexpr OptionText help_option{"help,h", "show this", no_value};

void add_options(boost::program_options::options_description& options,
                 const std::vector<OptionText>& texts);

// All of a command's that has no others, --help too.
boost::program_options::options_description options_of(const std::vector<OptionText>& texts);

// --- reading ---

// It was typed, and does not merely stand for what is left out.
bool is_typed(const boost::program_options::variables_map& values, const char* option);

// The first of them that was typed.
std::optional<std::string> first_typed(const boost::program_options::variables_map& values,
                                       std::initializer_list<const char*> options);

// The one of `choices` that name_of() calls `text`. Throws InputError that lists them all.
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

// The values in their order, without those that came before.
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

struct WholeNumbers {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
};

// That importers take for --ranks and --ranks-per-node.
constexpr std::int64_t most_imported_ranks = 1'000'000;

// The value of --`option`, or what `text` says. Throw InputError when it is no such number.
std::int64_t whole_number(const boost::program_options::variables_map& values, const char* option,
                          WholeNumbers range);
std::int64_t whole_number(const std::string& text, const std::string& option, WholeNumbers range);

// None where it was not given.
std::optional<std::int64_t> optional_number(const boost::program_options::variables_map& values,
                                            const char* option, WholeNumbers range);

// The values of --`option` between commas.
std::vector<std::int64_t> whole_numbers(const boost::program_options::variables_map& values,
                                        const char* option, WholeNumbers range);

// The seconds that --`option` says, such as 90s, 2min, 1.5h. Throws InputError when it is no such
// time, or not within the bounds.
double seconds_value(const boost::program_options::variables_map& values, const char* option,
                     double least, double most);

// The share that --`option` says in percent, such as 5% or 0.5%. Throws InputError when it is none,
// or not within the range, which is of shares.
double share_value(const boost::program_options::variables_map& values, const char* option,
                   const NumberRange& range);

// The value of --seed.
std::uint64_t seed_value(const boost::program_options::variables_map& values);

// The value of --`option`, empty when it was not given.
std::string text_or_empty(const boost::program_options::variables_map& values, const char* option);

// All values of --`option`, which may be repeated or not; none when it was not given.
std::vector<std::string> texts_value(const boost::program_options::variables_map& values,
                                     const char* option);

// The value of --`option`, which has one, and its parts between commas.
const std::string& text_value(const boost::program_options::variables_map& values,
                              const char* option);
std::vector<std::string> list_value(const boost::program_options::variables_map& values,
                                    const char* option);

// What --`option` names of `choices`, as choice_named() does.
template <typename Choices>
auto choice_value(const boost::program_options::variables_map& values, const char* option,
                  const Choices& choices) {
    return choice_named(text_value(values, option), choices, std::string("--") + option);
}

// Throws UsageError where both are "-".
void check_one_printed(const boost::program_options::variables_map& values,
                       const std::string& command, const char* output, const char* other);

}  // namespace bucketwise
