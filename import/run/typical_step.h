// The step that stands for all of a traced run, each of its marks at the median, and what the
// documents of scenarios have in common that are made of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "sim/base/json.h"
#include "sim/base/units.h"

namespace bucketwise {

// The name of operations for which the compute stream waits as it does in the trace for what is not
// simulated.
constexpr const char* stall_name = "waiting for other streams";

// What it says of the costs of copies and of issuing collectives, too.
struct TypicalStep {
    std::vector<StepMark> forward = {};
    std::vector<StepMark> backward = {};
    std::vector<StepMark> optimizer = {};      // if all steps do the same in it
    Duration copy_launch{0};                   // host time to launch one
    std::optional<Duration> host_issue = {};   // of a collective; none: nothing tells
    std::optional<double> copy_gb_per_s = {};  // of gradients into and out of buckets
    bool views = false;                        // gradients are views of their buckets
};

// But for copy_gb_per_s and views.
TypicalStep typical_step(const TracedRun& run);

// Of marks of the first step: a collective that the scenario has, too.
bool is_simulated(const TracedRun& run, const StepMark& mark);

double rounded_us(Duration time);
double rounded_ms(Duration time);

// The name of the file without its folders.
std::string scenario_name(const std::string& file);

// Host time on its way to the operations that follow: what copies and collectives took beyond what
// is simulated of them.
class CarriedTime {
  public:
    void add(Duration time) { carry_ += time; }
    // The host's time, with what is carried to it.
    Duration with(Duration host);

  private:
    Duration carry_{0};
};

Json operation_json(const std::string& name, Duration host, Duration device = Duration{0});

}  // namespace bucketwise
