// Values of options that several subcommands read alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"

namespace bucketwise {

// The one of `choices` that name_of() calls `text`. Throws InputError that lists them all.
template <typename Choices>
auto choice_named(const std::string& text, const Choices& choices, const std::string& option) {
    std::string listed;
    for (const auto choice : choices) {
        if (text == name_of(choice)) {
            return choice;
        }
        listed += (listed.empty() ? "" : ", ") + std::string(name_of(choice));
    }
    throw InputError(option, "", "one of " + listed, "\"" + text + "\"");
}

struct WholeNumbers {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
};

// The value of --`option`, or what `text` says. Throw InputError when it is no such number.
std::int64_t whole_number(const boost::program_options::variables_map& values, const char* option,
                          WholeNumbers range);
std::int64_t whole_number(const std::string& text, const std::string& option, WholeNumbers range);

// The value of --`option`, empty when it was not given.
std::string text_or_empty(const boost::program_options::variables_map& values, const char* option);

}  // namespace bucketwise
