#include "bench/benches.h"

namespace bucketwise {

const CommandGroup bench_group{
    .name = "bench",
    .wants = "a build with -D BUCKETWISE_BENCHES=ON",
    .usage = "bench WHAT [OPTIONS]",
    .explanation = "This build leaves out the published systems (BUCKETWISE_BENCHES).",
    .text = "",
    .commands = {}};

}  // namespace bucketwise
