// What a command takes: the one description by which its arguments are read, and of which its
// --help, the completions of shells and the man page are made.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

namespace bucketwise {

// What a shell offers for an argument or the value of an option.
struct Completions {
    std::vector<std::string> names = {};
    bool files = true;     // beside the names
    bool several = false;  // names, separated by commas
};

// What stands without a name on a command line.
struct PositionalArgument {
    const char* option = "scenario";  // that stands for it
    int most = 1;                     // -1: any number
};

struct CommandHelp {
    // "bucketwise predict SCENARIO [OPTIONS]", a line for every way.
    std::vector<std::string> usage;
    boost::program_options::options_description options;
    // What follows the options: paragraphs, and lines to be typed, indented by two. Those after
    // "examples:" are examples; a line that ends with a backslash goes on in the next.
    std::string_view text;
    Completions arguments = {};  // of those without a name
    // By option, where it is not every command's; left out: files.
    std::map<std::string, Completions> values = {};
    PositionalArgument positional = {};
    std::vector<const char*> required = {};  // options and arguments
    std::string_view wants = {};             // what is said to be expected where one is missing
};

// Exactly these, by what name_of() calls them.
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

// The links that ship, and files.
Completions links();

// The models that ship, each of which is a scenario too, and files.
Completions scenarios();

// The devices that ship.
Completions devices();

// What --help prints.
std::string help_text(const CommandHelp& help);

// --- the commands ---

// Arguments read by a command's description.
struct CommandLine {
    std::vector<std::string> arguments;  // as typed, after the command's name
    boost::program_options::variables_map values;
};

struct CommandEntry {
    std::string_view name;
    std::string_view summary;
    int (*run)(const CommandLine& line) = nullptr;  // of a command
    CommandHelp (*help)() = nullptr;                // of a command
    const struct CommandGroup* group = nullptr;     // of a group
};

// Commands that are one word more.
struct CommandGroup {
    std::string_view name;         // "bench"
    std::string_view wants;        // what the word says: "what to measure"
    std::string_view usage;        // without "bucketwise"
    std::string_view explanation;  // a sentence
    std::string_view text;         // as a command's
    std::span<const CommandEntry> commands;
};

std::string help_text(const CommandGroup& group);

// Runs the command of the group that the first argument names, with those after it, or prints its
// help. Abbreviated options are refused. Throws UsageError.
int run_group(const CommandGroup& group, const std::vector<std::string>& arguments);

}  // namespace bucketwise
