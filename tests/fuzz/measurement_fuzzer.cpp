// Any bytes as a file of measurements: either InputError says what is wrong with them, or what can
// be fitted to them is finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "calibrate/fit/calibration.h"
#include "calibrate/fit/measured_run.h"
#include "cli/ranks/measurement_file.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/link/link.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/fuzz.h"

namespace bucketwise {
namespace {

// JSON has no other numbers: what is none is written as null.
void check_numbers(const Json& json) {
    if (json.is_number_float()) {
        require(std::isfinite(json.get<double>()));
    }
    if (json.is_structured()) {  // a number's only child is itself
        for (const Json& child : json) {
            check_numbers(child);
        }
    }
}

std::optional<Scenario> scenario_of(const MeasuredRun& run) {
    if (!run.environment || run.environment->scenario.empty()) {
        return std::nullopt;
    }
    return parse_scenario(parse_json(run.environment->scenario, "scenario"), "scenario", no_file);
}

void calibrate_from(std::string_view text) {
    try {
        const MeasurementLines lines = read_measurements(source_of(text, text.size()), "file");
        // Where blocks end says nothing.
        require(read_measurements(source_of(text, 7), "file").records == lines.records);
        std::string written;
        for (const Measurement& record : lines.records) {
            written += line_of(record);
        }
        require(read_measurements(source_of(written, written.size()), "file").records ==
                lines.records);
        const MeasuredRun run = collect_run(lines.records, lines.torn, "file");
        const Calibration calibration = calibrate({run}, scenario_of(run));
        check_numbers(link_json(calibration.link));
        check_numbers(fit_json(calibration));
        require(!calibration_report(calibration).empty());
    } catch (const InputError&) {
        return;
    }
}

}  // namespace
}  // namespace bucketwise

// libFuzzer knows this function by its name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // libFuzzer speaks of bytes, the reader of characters.
    bucketwise::calibrate_from({reinterpret_cast<const char*>(data), size});
    return 0;
}
