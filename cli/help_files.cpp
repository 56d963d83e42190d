// bucketwise completion SHELL, bucketwise man: files for shells and for man, made of --help.
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/shell/csv.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/version.h"

namespace bucketwise {
namespace {

// --- completion ---

constexpr std::string_view completion_text = R"(
examples:
  source <(bucketwise completion bash)
  bucketwise completion bash > ~/.local/share/bash-completion/completions/bucketwise
  bucketwise completion zsh > ~/.zfunc/_bucketwise

For zsh, ~/.zfunc has to be in fpath before compinit runs. cmake --install puts both where the shells look for them.
)";

// The program itself answers with candidates: `bucketwise complete WORDS...`.
constexpr std::string_view bash_completion = R"(# bash completion of bucketwise
_bucketwise() {
    mapfile -t COMPREPLY < <(bucketwise complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
    compopt -o filenames 2> /dev/null
    [[ ${COMPREPLY[0]-} != *[,/] && ${COMP_WORDS[COMP_CWORD]} != *,* ]] || compopt -o nospace 2> /dev/null
}
complete -F _bucketwise bucketwise
)";

constexpr std::string_view zsh_completion = R"(#compdef bucketwise
# zsh completion of bucketwise
_bucketwise() {
    local -a offered=("${(@f)$(bucketwise complete "${(@Q)words[2,CURRENT]}" 2> /dev/null)}")
    compadd -S '' -- ${(M)offered:#*/}
    compadd -- ${offered:#(|*/)}
}
if [[ $funcstack[1] == _bucketwise ]]; then _bucketwise "$@"; else compdef _bucketwise bucketwise; fi
)";

int print_completion(const std::string& shell) {
    if (shell != "bash" && shell != "zsh") {
        throw UsageError{fmt::format(
            "completion: expected bash or zsh, got {}; see bucketwise completion --help",
            shell.empty() ? "nothing" : "\"" + shell + "\"")};
    }
    write_output("-", std::string(shell == "bash" ? bash_completion : zsh_completion));
    return exit_done;
}

// --- the manual page ---

constexpr std::string_view man_text = R"(
examples:
  bucketwise man > bucketwise.1
  bucketwise man | man -l -
)";

// Escapes troff's characters, and a dot or an apostrophe at the start of a line.
std::string troff(std::string_view text) {
    std::string page;
    for (const std::string& line : split_at(std::string(text), '\n')) {
        page += !line.empty() && (line[0] == '.' || line[0] == '\'') ? R"(\&)" : "";
        page += with_replaced(line, {{'-', R"(\-)"},
                                     {'\\', R"(\e)"},
                                     {'^', R"(\(ha)"},
                                     {'~', R"(\(ti)"},
                                     {'\'', R"(\(aq)"},
                                     {'`', R"(\(ga)"}}) +
                "\n";
    }
    return page;
}

std::string section(std::string_view macro, std::string_view title, std::string_view text) {
    return fmt::format(".{} \"{}\"\n.nf\n{}.fi\n", macro, title, troff(text));
}

std::string sections_of(const CommandGroup& group, const std::string& before) {
    std::string page = section("SS", before, help_text(group));
    for (const CommandEntry& command : group.commands) {
        const std::string words = fmt::format("{} {}", before, command.name);
        page += command.group != nullptr ? sections_of(*command.group, words)
                                         : section("SS", words, help_text(command.help()));
    }
    return page;
}

constexpr std::string_view files_text =
    R"(SCENARIO            JSON; scenarios/README.md explains every key, scenarios/scenario.schema.json is its schema
link.json           calibrate writes it, --link reads it; schema: scenarios/link.schema.json
measurements.jsonl  measure appends to it, one record per line; schema: scenarios/measurement.schema.json
PREFIX/share/bucketwise/scenarios
                    scenarios and links that ship; a file scenarios/... that is not in the current folder is
                    looked for there
PREFIX/share/bucketwise/plots
                    plot.py, which validate runs with python3 and matplotlib, and other pictures)";

constexpr std::string_view exit_text = R"(0  done
1  the run failed
2  bad input or usage
3  check: a limit is not held

An error is one line on standard error: bucketwise: FILE: /json/pointer: expected ..., got ...)";

constexpr std::string_view variables_text =
    R"(RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
    set by torchrun (or Open MPI's and Slurm's variables): this process is one rank of a job; --store is where
    the ranks meet
TMPDIR
    folder for temporary files
BUCKETWISE_PYTHON
    the Python that draws the pictures of validate; default: python3, or the environment that pip installed into
BUCKETWISE_LAUNCHER, BUCKETWISE_REPORT_FD, BUCKETWISE_STORE, BUCKETWISE_INTERFACE, BUCKETWISE_OUTPUT,
BUCKETWISE_ALGORITHM, BUCKETWISE_SCENARIO
    set by bucketwise for the ranks that it starts)";

int print_manual() {
    write_output("-", fmt::format(".TH BUCKETWISE 1 \"\" \"bucketwise {}\" \"User Commands\"\n"
                                  ".nh\n.ad l\n.SH NAME\nbucketwise \\- best "
                                  "gradient\\-bucket size and step time of "
                                  "data\\-parallel training\n.SH COMMANDS\n",
                                  program_version()) +
                          sections_of(all_commands, "bucketwise") +
                          section("SH", "FILES", files_text) +
                          section("SH", "EXIT STATUS", exit_text) +
                          section("SH", "ENVIRONMENT", variables_text));
    return exit_done;
}

}  // namespace

CommandHelp completion_help() {
    const auto shell = std::make_shared<std::string>();
    return {.usage = {"bucketwise completion bash|zsh"},
            .options = options_of({}),
            .text = completion_text,
            .arguments = {.names = {"bash", "zsh"}, .files = false},
            .positional = {.option = "shell", .value = *shell},
            .run = [shell](const CommandLine&) { return print_completion(*shell); }};
}

CommandHelp man_help() {
    return {.usage = {"bucketwise man"},
            .options = options_of({}),
            .text = man_text,
            .arguments = {.files = false},
            .positional = {.most = 0},
            .run = [](const CommandLine&) { return print_manual(); }};
}

}  // namespace bucketwise
