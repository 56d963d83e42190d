// From measurements to the inputs of predict: a link, and the measured scenario with its real
// times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/compute_fit.h"
#include "calibrate/fit/device_fit.h"
#include "calibrate/fit/interference_fit.h"
#include "calibrate/fit/measured_run.h"
#include "calibrate/link/link_fit.h"
#include "sim/base/json.h"
#include "sim/link/link.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// All-gathers' or reduce-scatters' own costs and interference.
struct OwnFit {
    CollectiveKind kind = CollectiveKind::all_gather;
    std::optional<LinkFit> link_fit;  // none: only their interference was measured
    InterferenceFit interference;
    std::vector<LinkPoint> points;  // the fit's
    bool operator==(const OwnFit&) const = default;
};

struct Calibration {
    LinkParameters link;
    LinkFit link_fit;  // without all-reduces, of all others together
    InterferenceFit interference;
    std::vector<OwnFit> own;             // of kinds that were measured
    std::vector<LinkPoint> all_reduces;  // the link's points; empty: those of `own`
    std::optional<HostCost> host_issue;  // of a collective; none: the host runs it itself
    std::optional<ComputeFit> compute;
    std::optional<DeviceFit> device;
    bool shared_gpu = false;            // several ranks ran on one GPU: the link is no interconnect
    std::vector<std::string> warnings;  // one sentence each, without an end
    bool operator==(const Calibration&) const = default;
};

// Fits the link to the isolated all-reduces of all runs, its own numbers of all-gathers and
// reduce-scatters to those, and all else to the first run. Runs may differ in their number of
// ranks and, where their kinds differ, in the implementation. Without all-reduces the link is
// fitted to all others together, by their steps and bytes. `scenario` is the one that the first run
// replayed, if any. Steps are ignored. Throws InputError for runs that do not belong together or
// hold no collectives. `processors`: see fit_link().
Calibration calibrate(const std::vector<MeasuredRun>& runs, const std::optional<Scenario>& scenario,
                      std::optional<std::int64_t> processors = {});

// The document of the measured scenario, with measured times of its operations and of the optimizer
// instead of a device's, and their variation. Its device gets the measured launch cost; where the
// host was the device, launching is part of the operations' times.
Json with_measured_computing(Json document, const ComputeFit& compute);

// The same with the calibrated link and the fitted device. Precondition: the calibration has a
// compute fit.
Json calibrated_scenario(Json document, const Calibration& calibration);

// The data behind the fit, for plots: points with residuals, slowdowns, warnings.
Json fit_json(const Calibration& calibration);

// The same for a person.
std::string calibration_report(const Calibration& calibration);

}  // namespace bucketwise
