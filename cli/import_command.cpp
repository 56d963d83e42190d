#include "cli/import_command.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/shell/exit_codes.h"
#include "cli/shell/scenario_document.h"

namespace bucketwise {

std::optional<ImportArguments> read_import_arguments(const std::vector<std::string>& arguments,
                                                     const ImportCommand& command,
                                                     const CommandHelp& help) {
    namespace po = boost::program_options;
    using Texts = std::vector<std::string>;
    po::options_description all;
    all.add(help.options);
    if (command.several) {
        all.add_options()(command.argument, po::value<Texts>());
    } else {
        all.add_options()(command.argument, po::value<std::string>());
    }
    const int most = command.several ? -1 : 1;
    const po::variables_map values =
        parse_with_positional(arguments, all, {command.argument, most});
    if (values.count("help") != 0) {
        print_help(help);
        return std::nullopt;
    }
    if (values.count(command.argument) == 0 || values.count("output") == 0) {
        throw UsageError{fmt::format(
            "import {0}: expected {1}, and -o with a file to write; see bucketwise import {0} "
            "--help",
            command.name, command.files)};
    }
    const auto& files = values[command.argument];
    return ImportArguments{values,
                           command.several ? files.as<Texts>() : Texts{files.as<std::string>()},
                           values["output"].as<std::string>()};
}

void check_import_files(const ImportArguments& arguments, const char* file,
                        std::vector<NamedFile> inputs, const std::vector<NamedFile>& outputs) {
    for (const std::string& path : arguments.files) {
        inputs.push_back({file, path});
    }
    std::vector<NamedFile> written{{"output", arguments.output}};
    written.insert(written.end(), outputs.begin(), outputs.end());
    check_outputs(inputs, written);
}

void write_import(const std::vector<OutputText>& outputs, const std::string& report) {
    write_outputs(outputs);
    if (std::none_of(outputs.begin(), outputs.end(),
                     [](const OutputText& output) { return output.path == "-"; })) {
        write_output("-", report);
    }
}

}  // namespace bucketwise
