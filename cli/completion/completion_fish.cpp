#include <fmt/format.h>

#include "cli/completion/described_commands.h"
#include "cli/shell/csv.h"

namespace bucketwise {
namespace {

constexpr std::string_view fish_head =
    R"(# fish completion of bucketwise, made by `bucketwise completion fish`.

# Whether the words before the current one begin with these.
function __bucketwise_has
    set -l words (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; or return 1
    test $last -eq 1; or test "$words[2..$last]" = "$argv"
end

# Whether they are these and no more.
function __bucketwise_is
    set -l words (commandline -opc)
    test (count $words) -eq (math (count $argv) + 1); and __bucketwise_has $argv
end

# Several names, separated by commas: each after those that the current word has already.
function __bucketwise_several
    set -l before (string match -r '^(?:--[a-z-]+=)?(.*,)?' -- (commandline -ct))[2]
    for name in $argv
        echo $before$name
    end
end

complete -c bucketwise -f
)";

// Within single quotes fish takes a backslash for itself.
std::string fish_quoted(std::string_view text) {
    return "'" + with_replaced(text, {{'\'', R"(\')"}, {'\\', R"(\\)"}}) + "'";
}

// The options of `complete` that offer them.
std::string fish_offer(const Completions& values) {
    const std::string names = fmt::format("{}", fmt::join(values.names, " "));
    std::string text = values.files ? " -F" : " -f";
    if (values.several) {
        text += " -a " + fish_quoted("(__bucketwise_several " + names + ")");
    } else if (!values.names.empty()) {
        text += " -a " + fish_quoted(names);
    }
    return text;
}

std::string word(const std::string& condition, std::string_view name, std::string_view summary) {
    return fmt::format("complete -c bucketwise -n {} -a {} -d {}\n", fish_quoted(condition),
                       fish_quoted(name), fish_quoted(summary));
}

std::string lines_of(const DescribedCommand& command) {
    const std::string condition = fish_quoted("__bucketwise_has " + command.words());
    std::string text = fmt::format("complete -c bucketwise -n {}{}\n", condition,
                                   fish_offer(command.help.arguments));
    for (const DescribedOption& option : described_options_of(command.help)) {
        const std::string letter = option.letter.empty() ? "" : " -s " + option.letter;
        const std::string value = option.takes_value ? " -r" + fish_offer(option.values) : "";
        text += fmt::format("complete -c bucketwise -n {}{} -l {}{} -d {}\n", condition, letter,
                            option.name, value, fish_quoted(option.description));
    }
    return text;
}

}  // namespace

std::string fish_completion(const CommandGroup& all,
                            const std::vector<DescribedCommand>& commands) {
    std::string text(fish_head);
    text +=
        "complete -c bucketwise -n '__bucketwise_is' -l help -d 'what there is'\n"
        "complete -c bucketwise -n '__bucketwise_is' -l version -d versions\n";
    for (const CommandEntry& command : all.commands) {
        text += word("__bucketwise_is", command.name, command.summary);
    }
    for (const DescribedCommand& command : commands) {
        if (!command.group.empty()) {
            text += word("__bucketwise_is " + command.group, command.name, command.summary);
        }
        text += lines_of(command);
    }
    return text;
}

}  // namespace bucketwise
