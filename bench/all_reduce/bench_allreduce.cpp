// bucketwise bench allreduce, allgather and reducescatter: the time, memory and exactness of
// collectives on real ranks, by algorithm, size and number of ranks, beside a link's simulation and
// published all-reduces.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "bench/benches.h"
#include "cli/ranks/measurement_file.h"
#include "cli/ranks/temporary_folder.h"
#include "cli/shell/size.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_messages.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// --- help ----------------------------------------------------------------------------------------

constexpr std::string_view all_reduce_examples = R"(
examples:
  bucketwise bench allreduce
  bucketwise bench allreduce --ranks 1,2,4,8,16 --algorithms ring,direct,library --bytes 4kB,64kB --format csv
  bucketwise bench allreduce --ranks 2,4 --link-rate 1gbit --bytes 1MB,10MB -o allreduce.jsonl
  bucketwise bench allreduce --ranks 4 --algorithms library --bytes 8B,1KiB,1MiB --format nccl-tests
  torchrun --no-python --nproc-per-node 2 bucketwise bench allreduce --store /tmp/meeting
  bucketwise bench allreduce --simulate --link link.json --ranks 2,64,4096 --bytes 1MiB,64MiB
  bucketwise bench allreduce --simulate --backend gloo --link link.json --ranks 2,4,8 --simulated-ranks 64,4096
  bucketwise bench allreduce --simulate --link scenarios/links/gloo_cs336.json --algorithms library \
    --published scenarios/published/cs336_allreduce.csv

The memory that messages and their sums add is simulated from each algorithm's working over Gloo; the difference from
the exact mean, from the order in which it adds. With --published and neither --ranks nor --bytes, the file's rows are
simulated, or measured.
)";

constexpr std::string_view other_examples = R"(
examples:
  bucketwise bench {0} --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o {0}.jsonl
  bucketwise bench {0} --ranks 4 --dtype bfloat16 --format nccl-tests
  bucketwise calibrate allreduce.jsonl allgather.jsonl reducescatter.jsonl -o link.json
  bucketwise bench {0} --simulate --link link.json --algorithms ring --ranks 2,64 --bytes 1MiB,64MiB

A size is that of the whole buffer, as nccl-tests counts it; a rest that is no whole element of each rank is left out.
Gloo's own reduce-scatter is not measured: PyTorch does not use it.
)";

constexpr std::string_view explanation = R"(
A time is that of the slowest rank. Every result is checked, element by element. Each algorithm runs in processes of
its own, so that their peak memory is its own too. Ranks that torchrun, mpirun or srun started run one algorithm after
another, and the peak includes the algorithms before. Ranks meet as those of bucketwise measure do.
)";

// --- one world: all sizes of one algorithm on ranks that were started together -------------------

RankJob job_of(const AllReduceOptions& options, std::int64_t ranks,
               AllReduceImplementation implementation) {
    RankJob job = options.job;
    job.ranks = static_cast<int>(ranks);
    job.request.implementation = implementation;
    return job;
}

class AllReduceWorld {
  public:
    AllReduceWorld(const AllReduceOptions& options, const RankJob& job, RankSession& session)
        : options_(options),
          job_(job),
          session_(session),
          messages_(session.connection().messages()) {
        const std::int64_t items = std::ssize(options.sizes) * options.job.order.rounds;
        const auto place = [](const auto& values, const auto& value) {
            return std::ranges::find(values, value) - values.begin();
        };
        const std::int64_t algorithms = std::ssize(options.implementations);
        session.expect(items * algorithms * std::ssize(options.ranks),
                       items * (place(options.ranks, job.ranks) * algorithms +
                                place(options.implementations, job.request.implementation)));
    }

    void run() {
        // The first message, of one element, brings into memory the code, stacks and connections
        // that any all-reduce needs. Later additions are the messages and their sums.
        session_.control().barrier();
        static_cast<void>(messages_->measure({element_size(options_.dtype), options_.dtype}, 1));
        memory_before_bytes_ = messages_->peak_memory_bytes();
        for (const Bytes size : options_.sizes) {
            first_sums_.push_back(sum_once(size));
        }
        session_.take_rounds(
            job_.order, options_.sizes.size(),
            [&](std::size_t item) { return label_of(options_.sizes[item]); },
            [&](std::int64_t round, std::size_t item) { measure(round, item); });
        session_.leave();
    }

  private:
    // Warms up, and checks every element of the sum: once per size, because the check takes longer
    // than the sum where ranks share cores. Sizes come in rising order, so that the peak of memory
    // so far belongs to this one. Returns the difference and the memory, over all ranks, on rank 0.
    AllReduceRecord sum_once(Bytes size) {
        session_.show("warming up: " + label_of(size));
        session_.control().barrier();
        const MessageTrace trace = messages_->measure(message_of(size), 1);
        if (!trace.wrong.empty()) {
            throw WrongSum(trace.wrong);
        }
        AllReduceRecord first;
        for (const std::vector<double>& of_rank : session_.gather(std::array{
                 trace.largest_difference, static_cast<double>(messages_->peak_memory_bytes()),
                 static_cast<double>(memory_before_bytes_)})) {
            first.largest_difference = std::max(first.largest_difference, of_rank[0]);
            if (const auto peak = static_cast<std::int64_t>(of_rank[1]);
                peak > first.peak_memory_bytes) {
                first.peak_memory_bytes = peak;
                first.memory_before_bytes = static_cast<std::int64_t>(of_rank[2]);
            }
        }
        return first;
    }

    // The first one does not count: the sizes before have left the caches to others. A rank that
    // shows nothing for long counts as hung.
    void measure(std::int64_t round, std::size_t item) {
        const Message message = message_of(options_.sizes[item]);
        session_.control().barrier();
        const std::int64_t iterations =
            options_.iterations.value_or(iterations_for(options_.sizes[item]));
        std::vector<Duration> times =
            messages_->repeat(message, iterations + 1, [&] { session_.show_again(); });
        times.erase(times.begin());
        AllReduceRecord record = first_sums_[item];
        record.transport = transport_of(job_);
        record.size = message.size;
        record.dtype = options_.dtype;
        record.round = round;
        record.samples_us = session_.slowest_us(times);
        if (options_.kind == CollectiveKind::all_reduce) {
            session_.keep({record});
        } else {
            session_.keep({CollectiveRecord{options_.kind, record}});
        }
    }

    [[nodiscard]] Message message_of(Bytes size) const {
        return {.size = whole_parts(options_, size, job_.ranks),
                .dtype = options_.dtype,
                .kind = options_.kind};
    }

    [[nodiscard]] std::string label_of(Bytes size) const {
        return fmt::format("{} on {}, {}", name_of(job_.request.implementation),
                           text_of_ranks(job_.ranks), message_text(size));
    }

    const AllReduceOptions& options_;
    const RankJob& job_;
    RankSession& session_;
    std::vector<AllReduceRecord> first_sums_;  // by item
    std::int64_t memory_before_bytes_ = 0;
    std::unique_ptr<MessageDevice> messages_;
};

// --- a rank --------------------------------------------------------------------------------------

// Our launcher names this rank's algorithm, and reads its file. Under another launcher the ranks
// run one algorithm after another, and rank 0 prints the table.
int run_as_rank(const AllReduceOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        const bool own = is_own_rank(identity);
        std::vector<AllReduceImplementation> implementations = options.implementations;
        std::string path = options.output;
        if (own) {
            implementations = {choice_named(environment_variable(algorithm_variable).value_or(""),
                                            implementations, algorithm_variable)};
            path = environment_variable(output_variable).value_or("");
        }
        std::optional<MeasurementFile> file;
        if (identity.rank == 0 && (own || !path.empty())) {
            if (!own) {
                check_measurement_output(path, false);
            }
            file.emplace(path);
        }
        std::vector<Measurement> all;
        const auto keep = [&](const std::vector<Measurement>& records) {
            all.insert(all.end(), records.begin(), records.end());
            if (file) {
                file->append(records);
            }
        };
        {
            ProgressReporter show(report, identity);
            for (const AllReduceImplementation implementation : implementations) {
                const RankJob job = job_of(options, identity.ranks, implementation);
                // Worlds have a store's keys of their own.
                RankSession session =
                    meet(job, identity, std::ref(show), keep, name_of(implementation));
                AllReduceWorld world(options, job, session);
                EnvironmentRecord environment = environment_of(job, identity, session);
                environment.command = passed_on_command(job.command);
                session.keep({environment});
                world.run();
            }
        }
        if (!own && identity.rank == 0) {
            print_all_reduces(options, all);
        }
    });
}

// --- the launcher --------------------------------------------------------------------------------

// Every algorithm and number of ranks runs in processes of its own, one world after another.
// Returns the failure that ended it early, if one did.
std::optional<std::string> launch_worlds(const AllReduceOptions& options, const std::string& file) {
    MeasureProgress line;
    for (const std::int64_t ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.implementations) {
            const std::string name(name_of(implementation));
            if (const auto failure =
                    launch_job(job_of(options, ranks, implementation),
                               {{algorithm_variable, name}, {output_variable, file}}, line)) {
                return fmt::format("{} ({} on {})", text_of(*failure), name, text_of_ranks(ranks));
            }
        }
    }
    return std::nullopt;
}

int run_launcher(const AllReduceOptions& options) {
    const TemporaryFolder folder;
    const std::string file = options.output.empty() ? folder.path() + "/records" : options.output;
    check_measurement_output(file, false);
    MeasurementFile output(file);  // fails now rather than on rank 0, if it must
    output.hand_over();
    const std::optional<std::string> failure = launch_worlds(options, file);
    output.take_back();
    // The records before a failure still count.
    if (output.is_in_place()) {
        print_all_reduces(options, read_measurements(file).records);
    }
    if (failure) {
        throw std::runtime_error(*failure);
    }
    output.check_in_place();
    return exit_done;
}

int run_kind(AllReduceOptions& options) {
    choose_rows(options);
    if (options.measures) {
        return options.identity ? run_as_rank(options, *options.identity) : run_launcher(options);
    }
    if (!options.identity || options.identity->rank == 0) {
        print_all_reduces(options, {});
    }
    return exit_done;
}

CommandHelp help_of(CollectiveKind kind) {
    static std::map<CollectiveKind, std::string> texts;
    const auto o = std::make_shared<AllReduceOptions>();
    o->kind = kind;
    const char* const name = record_name(kind).data();
    const std::string examples = kind == CollectiveKind::all_reduce
                                     ? std::string(all_reduce_examples)
                                     : fmt::format(fmt::runtime(other_examples), name);
    return bench_command(
        name, "", *o, all_reduce_rows(*o), texts[kind] = examples + std::string(explanation),
        [o] { return run_kind(*o); }, ", and more for many ranks, large messages or slow links");
}

}  // namespace

CommandHelp bench_allreduce_help() {
    return help_of(CollectiveKind::all_reduce);
}
CommandHelp bench_allgather_help() {
    return help_of(CollectiveKind::all_gather);
}
CommandHelp bench_reducescatter_help() {
    return help_of(CollectiveKind::reduce_scatter);
}

}  // namespace bucketwise
