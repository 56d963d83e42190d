// Completion: a shell passes the words typed so far, and the program answers with candidates.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/shell/command_help.h"
#include "cli/shell/result_table.h"
#include "sim/base/dtype.h"
#include "sim/plan/strategy.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// Offers for options that mean the same in every command.
Completions offers_of(const CommandHelp& help, const std::string& option) {
    static const std::map<std::string, Completions> common{
        {"backend", {.names = {"gloo", "nccl"}, .files = false}},
        {"device", devices()},
        {"dtype", one_of(every<DType>)},
        {"format", one_of(every<TableFormat>)},
        {"link", links()},
        {"strategy", one_of(every<Strategy>)}};
    for (const auto* known : {&help.values, &common}) {
        if (const auto found = known->find(option); found != known->end()) {
            return found->second;
        }
    }
    return {};
}

// Files and folders whose path begins so.
std::vector<std::string> files_from(const std::string& begin) {
    const std::string folder = begin.substr(0, begin.rfind('/') + 1);  // npos + 1 is 0
    std::vector<std::string> files;
    std::error_code error;
    for (fs::directory_iterator entry(folder.empty() ? "." : folder, error);
         !error && entry != fs::directory_iterator(); entry.increment(error)) {
        std::error_code ignored;
        const std::string name = folder + entry->path().filename().string();
        files.push_back(name + (entry->is_directory(ignored) ? "/" : ""));
    }
    std::ranges::sort(files);
    return files;
}

// The offers that begin as `typed` does. `before` is put back in front.
std::vector<std::string> matching(const Completions& offers, std::string typed,
                                  std::string before = {}) {
    std::vector<std::string> all = offers.names;
    if (const std::size_t comma = typed.rfind(','); offers.several && comma != std::string::npos) {
        before += typed.substr(0, comma + 1);
        typed.erase(0, comma + 1);
    }
    if (offers.files) {
        std::ranges::copy(files_from(typed), std::back_inserter(all));
    }
    std::vector<std::string> found;
    for (const std::string& one : all) {
        if (one.starts_with(typed)) {
            found.push_back(before + one);
        }
    }
    return found;
}

std::vector<std::string> candidates_of(const CommandHelp& help,
                                       const std::vector<std::string>& words) {
    const std::vector<DescribedOption> options = described_options(help);
    std::string typed = words.back();
    std::string before = words.size() > 1 ? words[words.size() - 2] : "";
    std::string kept;  // "--option=", which zsh has in the same word
    const std::size_t equals = typed.find('=');
    if (typed == "=") {  // readline parts words at =
        typed.clear();
    } else if (before == "=") {
        before = words.size() > 2 ? words[words.size() - 3] : "";
    } else if (typed.starts_with("--") && equals != std::string::npos) {
        before = typed.substr(0, equals);
        kept = typed.substr(0, equals + 1);
        typed.erase(0, equals + 1);
    }
    const auto option = std::ranges::find_if(options, [&](const DescribedOption& one) {
        return one.takes_value && (before == "--" + one.name || before == "-" + one.letter);
    });
    if (option != options.end()) {
        return matching(option->values, typed, kept);
    }
    if (!typed.starts_with('-')) {
        return matching(help.arguments, typed);
    }
    Completions names{.files = false};
    for (const DescribedOption& one : options) {
        names.names.push_back("--" + one.name);
        if (!one.letter.empty()) {
            names.names.push_back("-" + one.letter);
        }
    }
    return matching(names, typed);
}

}  // namespace

std::vector<DescribedOption> described_options(const CommandHelp& help) {
    std::vector<DescribedOption> options;
    for (const auto& option : help.options.options()) {
        const std::string name = option->long_name();
        const OptionText* const row = row_of(*option);
        const std::string spelled = row == nullptr ? "" : row->name;
        const std::size_t comma = spelled.find(',');
        DescribedOption described{
            .name = name,
            .letter = comma == std::string::npos ? "" : spelled.substr(comma + 1),
            .takes_value = option->semantic()->max_tokens() > 0};
        if (described.takes_value) {
            described.values = row != nullptr && row->offers         ? *row->offers
                               : row != nullptr && row->value.offers ? *row->value.offers
                                                                     : offers_of(help, name);
        }
        options.push_back(std::move(described));
    }
    return options;
}

std::vector<std::string> candidates(const CommandGroup& all, std::vector<std::string> words) {
    const CommandGroup* group = &all;
    while (words.size() > 1) {
        const auto command = std::ranges::find(group->commands, words.front(), &CommandEntry::name);
        if (command == group->commands.end()) {
            return {};
        }
        words.erase(words.begin());
        if (command->group == nullptr) {
            return candidates_of(command->help(), words);
        }
        group = command->group;
    }
    Completions names{.names = {"--help"}, .files = false};
    if (group == &all) {
        names.names.emplace_back("--version");
    }
    for (const CommandEntry& command : group->commands) {
        names.names.emplace_back(command.name);
    }
    return words.empty() ? std::vector<std::string>{} : matching(names, words.back());
}

}  // namespace bucketwise
