// bucketwise bench syncbn: time and peak memory of a BatchNorm layer that is synchronised over
// ranks, by implementation, batch and width; on real ranks, simulated, and published.
#include <optional>
#include <string>
#include <vector>

#include "bench/batch_norm/bench_syncbn_rank.h"
#include "bench/batch_norm/options.h"
#include "bench/batch_norm/report.h"
#include "bench/benches.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "hw/launch/rank_identity.h"

namespace bucketwise {

int run_bench_syncbn(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchSyncBnOptions options = bench_syncbn_options(line, identity);
    if (options.backend != nullptr) {
        return run_bench_syncbn_ranks(options, identity);
    }
    if (!identity || identity->rank == 0) {  // nothing is measured, and one of them prints
        write_output("-", bench_syncbn_report(options, {}));
    }
    return exit_done;
}

}  // namespace bucketwise
