// A command described once: parsing, --help, completion and the manual page all read it.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"

namespace bucketwise {

// Arguments as a command's description reads them.
struct CommandLine {
    std::vector<std::string> arguments;  // as typed, after the command's name
    boost::program_options::variables_map values;
};

// Arguments without a name.
struct PositionalArgument {
    const char* option = "scenario";  // that stands for them
    int most = 1;                     // -1: any number; 0: there are none
    OptionValue value = {};           // the field
};

struct CommandHelp {
    // "bucketwise predict SCENARIO [OPTIONS]", a line for each form.
    std::vector<std::string> usage;
    boost::program_options::options_description options;
    // Paragraphs, and lines to type, indented by two. Lines after "examples:" are examples; a line
    // that ends with a backslash continues.
    std::string_view text;
    Completions arguments = {};
    std::map<std::string, Completions> values = {};  // of options whose rows offer nothing
    PositionalArgument positional = {};
    std::vector<const char*> required = {};  // options and arguments
    std::string wants = {};                  // the error's "expected" where one is missing
    std::function<int(const CommandLine& line)> run = {};  // once the fields are filled
};

// The links that ship, and files.
Completions links();
// The models that ship, and files: every model is a scenario too.
Completions scenarios();
// The devices that ship.
Completions devices();

// --format.
OptionText format_row(TableFormat& format);

// A command without arguments, such as "bucketwise link list", that prints a table.
CommandHelp list_help(const std::string& words, std::string_view text,
                      const std::function<ResultTable()>& table);

// The text of --help.
std::string help_text(const CommandHelp& help);

struct CommandEntry {
    std::string_view name;
    std::string_view summary;
    CommandHelp (*help)() = nullptr;             // of a command
    const struct CommandGroup* group = nullptr;  // of a group
};

// Commands of two words.
struct CommandGroup {
    std::string_view name;         // "bench"
    std::string_view wants;        // the second word's meaning: "a collective or a table"
    std::string_view usage;        // without "bucketwise"
    std::string_view explanation;  // a sentence
    std::string_view text;         // as a command's
    std::span<const CommandEntry> commands;
};

std::string help_text(const CommandGroup& group);

// Runs the command that the first arguments name, or prints its help. Abbreviated options are
// refused. Throws UsageError.
int run_group(const CommandGroup& group, const std::vector<std::string>& arguments);

struct DescribedOption {
    std::string name;
    std::string letter;  // "o", or empty
    bool takes_value = false;
    Completions values = {};
};
std::vector<DescribedOption> described_options(const CommandHelp& help);

// Candidates for the last of the words typed after "bucketwise", files among them.
std::vector<std::string> candidates(const CommandGroup& all, std::vector<std::string> words);

}  // namespace bucketwise
