#include "cli/command.h"

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options/errors.hpp>

#include "hw/environment.h"
#include "sim/error.h"

namespace bucketwise {
namespace {

struct Command {
    std::string_view name;
    std::string_view summary;
    int (*run)(const std::vector<std::string>&);
};

constexpr std::array<Command, 9> commands{{
    {"predict", "the best bucket cap and the step time of a scenario, simulated", run_predict},
    {"sweep", "what if: the step at every combination of values of a scenario's keys", run_sweep},
    {"measure", "the same scenario on real ranks, every sample kept", run_measure},
    {"calibrate", "link and computing times from measurements", run_calibrate},
    {"compare", "predicted beside measured, and why they differ", run_compare},
    {"validate", "measure, calibrate, predict, compare and plot, into one folder", run_validate},
    {"link", "what collectives cost on a link, by size; the presets that come along", run_link},
    {"import", "what other tools have written, as files of this one", run_import},
    {"bench", "all-reduce algorithms on real ranks, side by side", run_bench},
}};

std::string usage() {
    std::string text =
        "usage: bucketwise COMMAND [ARGUMENTS]\n\n"
        "Predicts the best gradient-bucket size and the step time of data-parallel "
        "training.\n\ncommands:\n";
    for (const Command& command : commands) {
        text += fmt::format("  {:<10} {}\n", command.name, command.summary);
    }
    return text +
           "\n  bucketwise COMMAND --help   its options and examples\n"
           "  bucketwise --version        versions, for a bug report\n";
}

std::string version() {
    const Environment environment = read_environment();
    return fmt::format("bucketwise {}\n{}\n{}\n{}, {} cores\n{}\n", BUCKETWISE_VERSION,
                       environment.compiler, environment.gpu_libraries, environment.cpu,
                       environment.cores, environment.kernel);
}

int dispatch(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        throw UsageError{"expected a command, got none; see bucketwise --help"};
    }
    const std::string& name = arguments.front();
    if (name == "--help" || name == "-h" || name == "help") {
        fmt::print("{}", usage());
        return exit_done;
    }
    if (name == "--version") {
        fmt::print("{}", version());
        return exit_done;
    }
    for (const Command& command : commands) {
        if (command.name == name) {
            return command.run({arguments.begin() + 1, arguments.end()});
        }
    }
    throw UsageError{fmt::format("expected a command, got \"{}\"; see bucketwise --help", name)};
}

int complain(const std::string& message, int exit_code) {
    // Not fmt::print, which throws when nobody reads what it writes.
    std::fputs(("bucketwise: " + message + "\n").c_str(), stderr);
    return exit_code;
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
    try {
        return dispatch(arguments);
    } catch (const InputError& error) {
        return complain(error.what(), exit_bad_input);
    } catch (const UsageError& error) {
        return complain(error.message, exit_bad_input);
    } catch (const boost::program_options::error& error) {
        return complain(error.what(), exit_bad_input);
    } catch (const std::bad_alloc&) {
        return complain("out of memory", exit_failed);
    } catch (const std::exception& error) {
        return complain(error.what(), exit_failed);
    }
}

}  // namespace bucketwise
