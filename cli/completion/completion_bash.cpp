#include <map>

#include <fmt/format.h>

#include "cli/completion/described_commands.h"

namespace bucketwise {
namespace {

// Readline may take a word apart at = (COMP_WORDBREAKS), which the first lines mend.
constexpr std::string_view bash_head =
    R"(# bash completion of bucketwise, made by `bucketwise completion bash`.

# Names that begin as the current word does.
_bucketwise_names() {
    COMPREPLY+=($(compgen -W "$1" -- "$current"))
}

# The same of the last of several names, separated by commas.
_bucketwise_several() {
    local before=
    [[ $current == *,* ]] && before=${current%,*},
    COMPREPLY+=($(compgen -P "$before" -W "$1" -- "${current##*,}"))
    compopt -o nospace 2> /dev/null
}

_bucketwise_files() {
    local file
    compopt -o filenames 2> /dev/null
    while IFS= read -r file; do
        COMPREPLY+=("$file")
    done < <(compgen -f -- "$current")
}

_bucketwise() {
    local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} position=$COMP_CWORD
    local command=${COMP_WORDS[1]} options=
    COMPREPLY=()
    if [[ $current == = ]]; then
        current=
    elif [[ $option == = ]]; then
        option=${COMP_WORDS[COMP_CWORD-2]}
    fi
)";

constexpr std::string_view bash_tail = R"(
    if [[ $current == -* ]]; then
        COMPREPLY=()
        _bucketwise_names "$options"
    fi
}

complete -F _bucketwise bucketwise
)";

// The calls that offer them, or ":" where there is nothing to offer.
std::string bash_offer(const Completions& values) {
    std::string calls;
    if (!values.names.empty()) {
        calls = fmt::format("{} '{}'", values.several ? "_bucketwise_several" : "_bucketwise_names",
                            fmt::join(values.names, " "));
    }
    if (values.files) {
        calls += std::string(calls.empty() ? "" : "; ") + "_bucketwise_files";
    }
    return calls.empty() ? ":" : calls;
}

std::string case_of(const DescribedCommand& command) {
    std::string names;
    std::map<std::string, std::string> options_by_offer;
    for (const DescribedOption& option : described_options_of(command.help)) {
        const std::string letter = option.letter.empty() ? "" : "-" + option.letter;
        names += fmt::format("{}--{}{}{}", names.empty() ? "" : " ", option.name,
                             letter.empty() ? "" : " ", letter);
        if (option.takes_value) {
            std::string& options = options_by_offer[bash_offer(option.values)];
            options += fmt::format("{}--{}{}{}", options.empty() ? "" : " | ", option.name,
                                   letter.empty() ? "" : " | ", letter);
        }
    }
    std::string text =
        fmt::format("        '{}')\n            options='{}'\n", command.words(), names);
    if (!options_by_offer.empty()) {
        text += "            case $option in\n";
        for (const auto& [calls, options] : options_by_offer) {
            text += fmt::format(
                "                {})\n                    {}\n"
                "                    return ;;\n",
                options, calls);
        }
        text += "            esac\n";
    }
    return text + fmt::format("            {} ;;\n", bash_offer(command.help.arguments));
}

}  // namespace

std::string bash_completion(const CommandGroup& /*all*/,
                            const std::vector<DescribedCommand>& commands) {
    std::string first;
    std::map<std::string, std::string> second;  // by first word
    std::string cases;
    for (const DescribedCommand& command : commands) {
        if (command.group.empty()) {
            first += command.name + " ";
        } else {
            std::string& words = second[command.group];
            first += words.empty() ? command.group + " " : "";
            words += command.name + " ";
        }
        cases += case_of(command);
    }
    std::string text(bash_head);
    text += fmt::format(
        "    if ((position == 1)); then\n"
        "        _bucketwise_names '{}--help --version'\n        return\n    fi\n",
        first);
    for (const auto& [word, words] : second) {
        text += fmt::format(
            "    if [[ $command == {} ]]; then\n"
            "        if ((position == 2)); then\n"
            "            _bucketwise_names '{}--help'\n            return\n        fi\n"
            "        command+=\" ${{COMP_WORDS[2]}}\"\n    fi\n",
            word, words);
    }
    return text + "    case $command in\n" + cases + "    esac" + std::string(bash_tail);
}

}  // namespace bucketwise
