// bucketwise bench allreduce, allgather and reducescatter: the time, memory and exactness of
// collectives on real ranks, by algorithm, size and number of ranks, beside a link's simulation and
// published all-reduces.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "bench/benches.h"
#include "cli/ranks/measurement_file.h"
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

class AllReduceWorld {
  public:
    // `keep` is called on rank 0. All are kept by reference.
    AllReduceWorld(const AllReduceOptions& options, const RankJob& job, RankSession& session,
                   const RankSession::Keep& keep)
        : options_(options),
          job_(job),
          session_(session),
          keep_(keep),
          messages_(session.connection().messages()) {
        const std::int64_t items = std::ssize(options.sizes) * job.order.rounds;
        const std::int64_t jobs = std::ssize(options.jobs);
        const auto place = std::ranges::find(options.jobs, job.label, &RankJob::label);
        session.expect(items * jobs, items * (place - options.jobs.begin()));
    }

    // The rows are rank 0's.
    BenchRows run() {
        // The first message, of one element, brings into memory the code, stacks and connections
        // that any all-reduce needs. Later additions are the messages and their sums.
        session_.control().barrier();
        static_cast<void>(messages_->measure({element_size(options_.dtype), options_.dtype}, 1));
        memory_before_bytes_ = messages_->peak_memory_bytes();
        for (const Bytes size : options_.sizes) {
            all_rounds_.push_back(sum_once(size));
        }
        session_.take_rounds(
            job_.order, options_.sizes.size(),
            [&](std::size_t item) { return label_of(options_.sizes[item]); },
            [&](std::int64_t round, std::size_t item) { measure(round, item); });
        return session_.is_first() ? transformed(all_rounds_, measured_row) : BenchRows{};
    }

  private:
    // Warms up, and checks every element of the sum: once per size, because the check takes longer
    // than the sum where ranks share cores. Sizes come in rising order, so that the peak of memory
    // so far belongs to this one. Returns the difference and the memory, over all ranks, on rank 0.
    CollectiveRecord sum_once(Bytes size) {
        session_.show("warming up: " + label_of(size));
        session_.control().barrier();
        const MessageTrace trace = messages_->measure(message_of(size), 1);
        if (!trace.wrong.empty()) {
            throw WrongSum(trace.wrong);
        }
        CollectiveRecord first;
        first.kind = options_.kind;
        first.transport = transport_of(job_);
        first.size = message_of(size).size;
        first.dtype = options_.dtype;
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
        CollectiveRecord& all = all_rounds_[item];
        CollectiveRecord record = all;
        record.round = round;
        record.samples_us = session_.slowest_us(times);
        all.samples_us.insert(all.samples_us.end(), record.samples_us.begin(),
                              record.samples_us.end());
        keep_({record});
    }

    [[nodiscard]] Message message_of(Bytes size) const {
        return {.size = whole_parts(options_, size, job_.ranks),
                .dtype = options_.dtype,
                .kind = options_.kind};
    }

    [[nodiscard]] std::string label_of(Bytes size) const {
        return fmt::format("{}, {}", job_.label, message_text(size));
    }

    const AllReduceOptions& options_;
    const RankJob& job_;
    RankSession& session_;
    const RankSession::Keep& keep_;
    std::vector<CollectiveRecord> all_rounds_;  // by item
    std::int64_t memory_before_bytes_ = 0;
    std::unique_ptr<MessageDevice> messages_;
};

// --- running -------------------------------------------------------------------------------------

// On this rank; rank 0 keeps every sample in the output.
BenchRows measure_world(const AllReduceOptions& options, const RankJob& job, RankSession& session) {
    std::optional<MeasurementFile> file;
    if (session.is_first() && !options.output.empty()) {
        EnvironmentRecord environment = environment_of(job, options.identity.value(), session);
        environment.command = passed_on_command(job.command);
        file.emplace(options.output);
        file->append({environment});
    }
    return AllReduceWorld(options, job, session,
                          [&](const std::vector<Measurement>& records) {
                              if (file) {
                                  file->append(records);
                              }
                          })
        .run();
}

// Every algorithm and number of ranks is a job of its own.
int run_kind(AllReduceOptions& options) {
    choose_rows(options);
    const auto run = [&] {
        return run_bench(
            options,
            [&](const RankJob& job, RankSession& session) {
                return measure_world(options, job, session);
            },
            [&](const EnvironmentRecord* environment, const BenchRows& measured) {
                print_all_reduces(options, environment, measured);
            },
            options.jobs);
    };
    const bool keeps = options.measures && !options.output.empty();
    if (keeps && !is_own_rank(options.identity)) {
        check_measurement_output(options.output, false);
    }
    if (!keeps || options.identity) {
        return run();
    }
    MeasurementFile output(options.output);  // fails now rather than on rank 0, if it must
    output.hand_over();
    try {
        run();
    } catch (...) {
        output.take_back();
        throw;
    }
    output.take_back();
    output.check_in_place();
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
