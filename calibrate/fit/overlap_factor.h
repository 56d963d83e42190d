// One factor on all costs of overlap that are assumed, which a few steps can tell.
#pragma once

#include "sim/link/link.h"

namespace bucketwise {

void scale_interference(double factor, LinkParameters& link);

// The assumed interference times a fitted factor, with the factor's standard error.
void set_interference(const LinkParameters& assumed, double factor, double error,
                      LinkParameters& link);

}  // namespace bucketwise
