#include "cli/completion/described_commands.h"

#include <map>
#include <sstream>

#include "cli/ranks/backends.h"
#include "cli/shell/result_table.h"
#include "sim/base/dtype.h"
#include "sim/plan/strategy.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// What shells offer for options that mean the same wherever they are.
const std::map<std::string, Completions>& common_values() {
    static const std::map<std::string, Completions> values{
        {"backend", {.names = backend_names(), .files = false}},
        {"device", devices()},
        {"dtype", one_of(every<DType>)},
        {"format", one_of(every<TableFormat>)},
        {"link", links()},
        {"strategy", one_of(every<Strategy>)}};
    return values;
}

Completions values_of(const CommandHelp& help, const std::string& option) {
    for (const auto* values : {&help.values, &common_values()}) {
        const auto found = values->find(option);
        if (found != values->end()) {
            return found->second;
        }
    }
    return {};
}

// The text of a default; all that have one are texts.
std::string standard_of(const po::value_semantic& semantic) {
    boost::any value;
    if (!semantic.apply_default(value)) {
        return "";
    }
    const auto* text = boost::any_cast<std::string>(&value);
    return text == nullptr ? "" : *text;
}

}  // namespace

std::vector<DescribedOption> described_options_of(const CommandHelp& help) {
    std::vector<DescribedOption> options;
    for (const auto& option : help.options.options()) {
        DescribedOption described;
        described.name = option->long_name();
        const std::string shortest =
            option->canonical_display_name(po::command_line_style::allow_dash_for_short);
        described.letter = shortest.size() == 2 && shortest[0] == '-' ? shortest.substr(1) : "";
        described.takes_value = option->semantic()->max_tokens() > 0;
        described.standard = standard_of(*option->semantic());
        described.description = option->description();
        if (described.takes_value) {
            described.values = values_of(help, described.name);
        }
        options.push_back(std::move(described));
    }
    return options;
}

std::vector<DescribedCommand> described_commands(const CommandGroup& all) {
    std::vector<DescribedCommand> described;
    for (const CommandEntry& command : all.commands) {
        const std::string name(command.name);
        if (command.group == nullptr) {
            described.push_back({"", name, command.summary, command.help()});
            continue;
        }
        for (const CommandEntry& inner : command.group->commands) {
            described.push_back({name, std::string(inner.name), inner.summary, inner.help()});
        }
    }
    return described;
}

std::vector<TextBlock> blocks_of_text(std::string_view text) {
    std::vector<TextBlock> blocks;
    std::istringstream lines{std::string(text)};
    bool are_examples = false;
    bool is_new = true;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty() || line == "examples:") {
            are_examples = line == "examples:";
            is_new = true;
            continue;
        }
        const bool is_typed = line.rfind("  ", 0) == 0;
        if (is_new || blocks.back().is_typed != is_typed) {
            blocks.push_back({.is_typed = is_typed, .is_examples = is_typed && are_examples});
        }
        blocks.back().lines.push_back(is_typed ? line.substr(2) : line);
        is_new = false;
    }
    return blocks;
}

}  // namespace bucketwise
