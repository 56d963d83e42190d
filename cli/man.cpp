// bucketwise man: the manual page, in troff's man macros, made of what --help prints.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/completion/described_commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/csv.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/version.h"

namespace bucketwise {
namespace {

constexpr std::string_view man_text = R"(
examples:
  bucketwise man > bucketwise.1
  bucketwise man | man -l -
)";

// --- troff ---------------------------------------------------------------------------------------

// A minus that is one, so that it can be copied; backslashes, carets, tildes and quotes as they are
// typed; and no line that begins as a request does.
std::string troff(std::string_view line) {
    const std::string safe = !line.empty() && (line[0] == '.' || line[0] == '\'') ? R"(\&)" : "";
    return safe + with_replaced(line, {{'-', R"(\-)"},
                                       {'\\', R"(\e)"},
                                       {'^', R"(\(ha)"},
                                       {'~', R"(\(ti)"},
                                       {'\'', R"(\(aq)"},
                                       {'`', R"(\(ga)"}});
}

// A heading's argument.
std::string argument(std::string_view words) {
    return fmt::format("\"{}\"", troff(words));
}

std::string lines_of(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += troff(line) + "\n";
    }
    return text;
}

std::string typed(const std::vector<std::string>& lines) {
    return ".PP\n.nf\n.RS\n" + lines_of(lines) + ".RE\n.fi\n";
}

std::string term(const std::string& name, std::string_view what) {
    return fmt::format(".TP\n.B {}\n{}\n", troff(name), troff(what));
}

std::string option_term(const DescribedOption& option) {
    std::string block = ".TP\n";
    if (!option.letter.empty()) {
        block += fmt::format(R"(\fB\-{}\fR, )", option.letter);
    }
    block += fmt::format(R"(\fB{}\fR)", troff("--" + option.name));
    block += option.takes_value ? R"( \fIVALUE\fR)" : "";
    block += "\n" + troff(option.description);
    if (!option.standard.empty()) {
        block += fmt::format("; default: {}", troff(option.standard));
    }
    return block + "\n";
}

// --- sections ------------------------------------------------------------------------------------

std::string head() {
    return fmt::format(".TH BUCKETWISE 1 \"\" {} \"User Commands\"\n",
                       argument("bucketwise " + std::string(program_version()))) +
           ".nh\n.ad l\n"  // commands and keys whole
           ".SH NAME\nbucketwise \\- best gradient\\-bucket size and step time of data\\-parallel "
           "training\n";
}

std::string synopsis(const std::vector<DescribedCommand>& described) {
    std::string section = ".SH SYNOPSIS\n.nf\n";
    for (const DescribedCommand& command : described) {
        section += lines_of(command.help.usage);
    }
    return section + troff("bucketwise --help") + "\n" + troff("bucketwise --version") + "\n.fi\n";
}

constexpr std::string_view description = R"(.SH DESCRIPTION
Predicts, in milliseconds and without hardware, how long a step of data\-parallel training takes at every size of gradient
buckets, and which size is best, from a scenario: a file that describes model, cluster and synchronisation.
The same scenario runs on real processes, over Gloo on any CPU or NCCL on GPUs, and what is measured there turns into the
parameters to predict with.
.PP
Sizes are typed with their unit: 25MiB, 64kB.
Where a file is written,
.B \-
is standard output, and then nothing else goes there.
Progress goes to standard error, and only to a terminal.
)";

std::string commands_section(const std::vector<DescribedCommand>& described) {
    std::string section = ".SH COMMANDS\n";
    for (const DescribedCommand& command : described) {
        section += fmt::format(".SS {}\n", argument("bucketwise " + command.words()));
        section += troff(command.summary) + ".\n";
        for (const DescribedOption& option : described_options_of(command.help)) {
            section += option_term(option);
        }
        for (const TextBlock& block : blocks_of_text(command.help.text)) {
            if (!block.is_examples) {
                section += block.is_typed ? typed(block.lines) : ".PP\n" + lines_of(block.lines);
            }
        }
    }
    return section;
}

std::string examples_section(const std::vector<DescribedCommand>& described) {
    std::string section = ".SH EXAMPLES\n";
    for (const DescribedCommand& command : described) {
        for (const TextBlock& block : blocks_of_text(command.help.text)) {
            if (block.is_examples) {
                section += typed(block.lines);
            }
        }
    }
    return section;
}

std::string files_section() {
    return ".SH FILES\n" +
           term("SCENARIO",
                "A JSON file; every key is explained in scenarios/README.md, and "
                "scenarios/scenario.schema.json is its schema.") +
           term("link.json",
                "What calibrate writes and --link reads; schema: "
                "scenarios/link.schema.json.") +
           term("measurements.jsonl",
                "What measure appends, one record per line; schema: "
                "scenarios/measurement.schema.json.") +
           term("PREFIX/share/bucketwise/scenarios",
                "Scenarios and links that ship. A file named scenarios/... that is not in the "
                "current folder is looked for there.") +
           term("PREFIX/share/bucketwise/plots",
                "plot.py, which validate runs with python3 and matplotlib, and other pictures.");
}

std::string exit_section() {
    return ".SH EXIT STATUS\n" + term("0", "Done.") + term("1", "The run failed.") +
           term("2", "Bad input or usage.") +
           ".PP\nWhat was wrong is one line on standard error, bucketwise: FILE: "
           "/json/pointer: expected ..., got ...\n";
}

std::string environment_section() {
    return ".SH ENVIRONMENT\n" +
           term("RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE",
                "As torchrun sets them, or Open MPI's and Slurm's own variables: this process is "
                "one rank of a job that they started, and --store is where it meets the others.") +
           term("TMPDIR", "Where temporary files go.") +
           term("BUCKETWISE_PYTHON",
                "The Python that draws the pictures of validate. Installed by pip, the one of the "
                "same environment; else python3.") +
           term(
               "BUCKETWISE_LAUNCHER, BUCKETWISE_REPORT_FD, BUCKETWISE_STORE, "
               "BUCKETWISE_INTERFACE, BUCKETWISE_OUTPUT, BUCKETWISE_ALGORITHM",
               "Set by bucketwise for the ranks that it starts; nothing to set by hand.");
}

std::string manual_page(const std::vector<DescribedCommand>& described) {
    return head() + synopsis(described) + std::string(description) + commands_section(described) +
           files_section() + exit_section() + environment_section() + examples_section(described) +
           ".SH SEE ALSO\n.BR python3 (1),\n.BR tc (8)\n.PP\n" +
           troff("bucketwise COMMAND --help, and PREFIX/share/doc/bucketwise.") + "\n";
}

}  // namespace

CommandHelp man_help() {
    return {.usage = {"bucketwise man"},
            .options = options_of({}),
            .text = man_text,
            .arguments = {.files = false}};
}

int run_man(const CommandLine& line) {
    if (line.values.count("scenario") != 0) {
        throw UsageError{fmt::format("man: expected no arguments, got \"{}\"",
                                     text_value(line.values, "scenario"))};
    }
    write_output("-", manual_page(described_commands(all_commands)));
    return exit_done;
}

}  // namespace bucketwise
