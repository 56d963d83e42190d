// The document of a scenario: what all importers write alike, and the step of a traced run that it
// is made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/workload/workload.h"

namespace bucketwise {

double rounded_us(Duration time);  // to a picosecond
double rounded_ms(Duration time);

// The name of the file without its folders; `otherwise` if nothing of it can be shown.
std::string scenario_name(const std::string& file, const char* otherwise);

// Indices of gradients by readiness, in the order of parameters. `readiness` has the parameter of
// each; empty: the reverse order.
std::vector<std::size_t> by_parameter(const std::vector<std::int32_t>& readiness,
                                      std::size_t gradients);

Json gradient_json(const Gradient& gradient);
Json operation_json(const std::string& name, Duration host, Duration device = Duration{0});

// Operations on which the compute stream waits, as traced, for work that is not simulated.
constexpr const char* stall_name = "waiting for other streams";
// Waits in collectives that block the host, beyond the wire's time.
constexpr const char* late_name = "waiting for other ranks";

// The step that stands for all: each mark at its median.
struct TypicalStep {
    std::vector<StepMark> forward = {};
    std::vector<StepMark> backward = {};
    std::vector<StepMark> optimizer = {};  // empty unless all steps do the same in it
};

// Writes the document of a traced run.
class StepDocument {
  public:
    StepDocument(const TracedRun& run, Findings& findings);
    virtual ~StepDocument() = default;
    StepDocument(const StepDocument&) = delete;
    StepDocument& operator=(const StepDocument&) = delete;

  protected:
    // All but the link. The optimizer is a total, unless `is_listed` holds for one of its marks.
    Json document(Json workload, std::int64_t ranks, Json sync,
                  bool (*is_listed)(const StepMark& mark));
    virtual Json operations_json(const std::vector<StepMark>& marks) = 0;

    void tell_recomputed(const StepMark& mark, Json& operations);
    Json host_wait_json(const std::string& name, const StepMark& mark);
    // The host time, with the time carried to it.
    Duration carried(Duration host);

    template <typename Visit>
    void for_each_mark(Visit visit) const {
        for (const std::vector<StepMark>* pass : {&typical_.forward, &typical_.backward}) {
            std::ranges::for_each(*pass, visit);
        }
    }

    const TracedRun& run_;
    Findings& findings_;
    TypicalStep typical_;
    Duration copy_launch_{0};                   // host time to launch a copy
    std::optional<Duration> host_issue_ = {};   // host time to issue a collective
    std::optional<double> copy_gb_per_s_ = {};  // of gradients into and out of buckets
    // Host time of copies and collectives beyond what is simulated of them, on its way to the
    // operations that follow.
    Duration carry_{0};
    Duration recomputed_{0};  // of backward, in what was written so far

  private:
    Json step_json(Json& workload, bool (*is_listed)(const StepMark& mark));
};

}  // namespace bucketwise
