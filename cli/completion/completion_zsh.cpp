#include <map>

#include <fmt/format.h>

#include "cli/completion/described_commands.h"
#include "cli/shell/csv.h"

namespace bucketwise {
namespace {

std::string in_quotes(std::string_view text) {
    return "'" + with_replaced(text, {{'\'', R"('\'')"}}) + "'";
}

// In an argument of _arguments a colon, a bracket and a backslash mean something.
std::string escaped(std::string_view text) {
    return with_replaced(text, {{':', "\\:"}, {'[', "\\["}, {']', "\\]"}, {'\\', R"(\\)"}});
}

// ":what:how" of an argument.
std::string action(const std::string& what, const Completions& values) {
    const std::string names = fmt::format("{}", fmt::join(values.names, " "));
    if (values.names.empty()) {
        return fmt::format(":{}:{}", what, values.files ? "_files" : " ");
    }
    if (values.several) {
        return fmt::format(":{}:_values -s , {} {}", what, what, names);
    }
    if (values.files) {
        return fmt::format(R"(:{0}:{{ compadd -- {1}; _files }})", what, names);
    }
    return fmt::format(":{}:({})", what, names);
}

std::string argument_of(const DescribedOption& option, bool repeats) {
    const std::string star = repeats ? "*" : "";
    const std::string text = fmt::format("[{}]", escaped(option.description));
    const std::string value =
        option.takes_value ? action(option.name, option.values) : std::string();
    const std::string equals = option.takes_value ? "=" : "";
    std::string lines =
        "                " +
        in_quotes(fmt::format("{}--{}{}{}{}", star, option.name, equals, text, value)) + " \\\n";
    if (!option.letter.empty()) {
        lines += "                " +
                 in_quotes(fmt::format("{}-{}{}{}{}", star, option.letter,
                                       option.takes_value ? "+" : "", text, value)) +
                 " \\\n";
    }
    return lines;
}

std::string arguments_of(const DescribedCommand& command) {
    std::string text =
        fmt::format("        {})\n            _arguments -s -S \\\n", in_quotes(command.words()));
    for (const DescribedOption& option : described_options_of(command.help)) {
        text += argument_of(option, option.takes_value);
    }
    return text + fmt::format("                {} ;;\n",
                              in_quotes("*" + action("argument", command.help.arguments)));
}

std::string described(std::string_view word, std::string_view summary) {
    return fmt::format("            {}\n", in_quotes(escaped(word) + ":" + std::string(summary)));
}

std::string list_of(const std::string& name, const std::string& words) {
    return fmt::format("    local -a {0}=(\n{1}    )\n", name, words);
}

constexpr std::string_view zsh_tail = R"(    esac
}

if [[ $funcstack[1] == _bucketwise ]]; then
    _bucketwise "$@"
else
    compdef _bucketwise bucketwise
fi
)";

}  // namespace

std::string zsh_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands) {
    std::string cases;
    std::map<std::string, std::string> inner;
    for (const DescribedCommand& command : commands) {
        if (!command.group.empty()) {
            inner[command.group] += described(command.name, command.summary);
        }
        cases += arguments_of(command);
    }
    std::string first = described("--help", "what there is") + described("--version", "versions");
    for (const CommandEntry& command : all.commands) {
        first += described(command.name, command.summary);
    }
    std::string text =
        "#compdef bucketwise\n# zsh completion of bucketwise, made by `bucketwise completion "
        "zsh`.\n\n_bucketwise() {\n    local command=$words[2]\n" +
        list_of("commands", first) +
        "    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    "
        "fi\n";
    for (const auto& [word, words] : inner) {
        text += fmt::format("    if [[ $command == {} ]]; then\n", word) +
                list_of(word + "_commands", words) +
                fmt::format(
                    "        if ((CURRENT == 3)); then\n"
                    "            _describe command {}_commands\n            return\n"
                    "        fi\n        command+=\" $words[3]\"\n"
                    "        shift words\n        ((CURRENT--))\n    fi\n",
                    word);
    }
    return text + "    shift words\n    ((CURRENT--))\n    case $command in\n" + cases +
           std::string(zsh_tail);
}

}  // namespace bucketwise
