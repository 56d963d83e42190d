// bucketwise completion SHELL: what completes this program's arguments there.
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/completion/described_commands.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"

namespace bucketwise {
namespace {

constexpr std::string_view completion_text = R"(
examples:
  source <(bucketwise completion bash)
  bucketwise completion bash > ~/.local/share/bash-completion/completions/bucketwise
  bucketwise completion zsh > ~/.zfunc/_bucketwise
  bucketwise completion fish > ~/.config/fish/completions/bucketwise.fish

For zsh, ~/.zfunc has to be in fpath before compinit runs. Installed with cmake --install, all three are where the shells
look for them.
)";

struct Shell {
    std::string_view name;
    std::string (*completion)(const CommandGroup& all,
                              const std::vector<DescribedCommand>& commands);
};

constexpr std::array<Shell, 3> shells{
    {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};

std::string_view name_of(const Shell& shell) {
    return shell.name;
}

}  // namespace

CommandHelp completion_help() {
    return {.usage = {"bucketwise completion bash|zsh|fish"},
            .options = options_of({}),
            .text = completion_text,
            .arguments = one_of(shells),
            .positional = {"shell"}};
}

int run_completion(const CommandLine& line) {
    const std::string name = text_or_empty(line.values, "shell");
    for (const Shell& shell : shells) {
        if (shell.name == name) {
            write_output("-", shell.completion(all_commands, described_commands(all_commands)));
            return exit_done;
        }
    }
    throw UsageError{fmt::format(
        "completion: expected bash, zsh or fish, got {}; see bucketwise completion --help",
        name.empty() ? "nothing" : "\"" + name + "\"")};
}

}  // namespace bucketwise
