// What `bucketwise check` is given, as cases of its gate.
#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "calibrate/gate/gate_run.h"

namespace bucketwise {

// Traces together are one case: those of one rank are of several runs, those of several ranks of
// one. Measurements together are a case for each cap, each file a run. Every scenario is a case, as
// options change it. Throws InputError for what is none of these.
std::vector<GateCase> cases_of_files(const boost::program_options::variables_map& values,
                                     const std::vector<std::string>& files);

}  // namespace bucketwise
