// bucketwise bench allreduce, allgather and reducescatter: the time, memory and exactness of
// collectives on real ranks, for several algorithms, sizes and numbers of ranks; what a link says
// they are; and of all-reduces what others published.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/options.h"
#include "bench/all_reduce/report.h"
#include "bench/benches.h"
#include "cli/ranks/measurement_file.h"
#include "cli/ranks/temporary_folder.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/size.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_messages.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// One algorithm on the ranks that are started together: how they measure it.
RankJob job_of(const BenchAllReduceOptions& options, std::int64_t ranks,
               AllReduceImplementation implementation) {
    RankJob job = job_of(options, ranks);
    job.request.implementation = implementation;
    return job;
}

// All sizes of one algorithm on the ranks that were started together.
class AllReduceWorld {
  public:
    AllReduceWorld(const BenchAllReduceOptions& options, const RankJob& job, RankSession& session)
        : options_(options),
          job_(job),
          label_(fmt::format("{} on {}", name_of(job.request.implementation),
                             text_of_ranks(job.ranks))),
          session_(session),
          messages_(session.connection().messages()) {
        const std::int64_t items = std::ssize(options.sizes) * options.rounds;
        const auto place = [](const auto& values, const auto& value) {
            return std::ranges::find(values, value) - values.begin();
        };
        const std::int64_t algorithms = std::ssize(options.algorithms);
        session.expect(items * algorithms * std::ssize(options.ranks),
                       items * (place(options.ranks, job.ranks) * algorithms +
                                place(options.algorithms, job.request.implementation)));
    }

    void run() {
        meet_in_memory();
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
    // Over all ranks, on rank 0.
    struct FirstSum {
        double largest_difference = 0;
        std::int64_t peak_memory_bytes = 0;
        std::int64_t memory_before_bytes = 0;  // of the rank with that peak
    };

    // Code, stacks and connections that any all-reduce needs come into memory with the first, of
    // one element; what is added later is the messages and their summing.
    void meet_in_memory() {
        session_.control().barrier();
        static_cast<void>(messages_->measure({element_size(options_.dtype), options_.dtype}, 1));
        memory_before_bytes_ = messages_->peak_memory_bytes();
    }

    // Warms up, and checks every element of the sum: once per size, because that takes longer than
    // summing where ranks share cores. Sizes come here in rising order, so that the peak of memory
    // so far belongs to this one.
    FirstSum sum_once(Bytes size) {
        session_.show("warming up: " + label_of(size));
        session_.control().barrier();
        const MessageTrace trace = messages_->measure(message_of(size), 1);
        if (!trace.wrong.empty()) {
            throw WrongSum(trace.wrong);
        }
        FirstSum first;
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

    // One more than counts comes first: the sizes before have left the caches to others. Who says
    // nothing for long is taken for hung.
    void measure(std::int64_t round, std::size_t item) {
        const Bytes size = options_.sizes[item];
        session_.control().barrier();
        const std::int64_t iterations = options_.iterations.value_or(iterations_for(size));
        std::vector<Duration> times =
            messages_->repeat(message_of(size), iterations + 1, [&] { session_.show_again(); });
        times.erase(times.begin());
        const AllReduceRecord record{.transport = transport_of(job_),
                                     .size = message_of(size).size,
                                     .dtype = options_.dtype,
                                     .round = round,
                                     .samples_us = session_.slowest_us(times),
                                     .largest_difference = first_sums_[item].largest_difference,
                                     .peak_memory_bytes = first_sums_[item].peak_memory_bytes,
                                     .memory_before_bytes = first_sums_[item].memory_before_bytes};
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
        return fmt::format("{}, {}", label_, message_text(size));
    }

    const BenchAllReduceOptions& options_;
    const RankJob& job_;
    std::string label_;
    RankSession& session_;
    std::vector<FirstSum> first_sums_;  // by item
    std::int64_t memory_before_bytes_ = 0;
    std::unique_ptr<MessageDevice> messages_;
};

// Worlds do not share a store's keys.
void run_world(const BenchAllReduceOptions& options, const RankIdentity& identity,
               AllReduceImplementation implementation, const RankSession::Show& show,
               const RankSession::Keep& keep) {
    const RankJob job = job_of(options, identity.ranks, implementation);
    RankSession session = meet(job, identity, show, keep, name_of(implementation));
    AllReduceWorld world(options, job, session);
    EnvironmentRecord environment = environment_of(job, identity, session);
    environment.command = passed_on_command(options.command);
    session.keep({environment});
    world.run();
}

// This process is of one world, and the launcher reads the file.
void run_for_launcher(const BenchAllReduceOptions& options, const RankIdentity& identity,
                      const RankSession::Show& show) {
    const auto implementation = choice_named(environment_variable(algorithm_variable).value_or(""),
                                             options.algorithms, algorithm_variable);
    std::optional<MeasurementFile> file;
    if (identity.rank == 0) {
        file.emplace(environment_variable(output_variable).value_or(""));
    }
    run_world(options, identity, implementation, show,
              [&](const std::vector<Measurement>& records) { file->append(records); });
}

// What all worlds measured, on rank 0.
std::vector<Measurement> run_all(const BenchAllReduceOptions& options, const RankIdentity& identity,
                                 const RankSession::Show& show) {
    std::optional<MeasurementFile> file;
    if (identity.rank == 0 && !options.output.empty()) {
        check_measurement_output(options.output, false);
        file.emplace(options.output);
    }
    std::vector<Measurement> all;
    for (const AllReduceImplementation implementation : options.algorithms) {
        run_world(options, identity, implementation, show,
                  [&](const std::vector<Measurement>& records) {
                      all.insert(all.end(), records.begin(), records.end());
                      if (file) {
                          file->append(records);
                      }
                  });
    }
    return all;
}

// Our launcher says which algorithm this rank is for and reads its file. Under another launcher the
// ranks run one algorithm after another, and rank 0 prints the table.
int run_as_rank(const BenchAllReduceOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        std::vector<Measurement> records;
        {
            ProgressReporter show(report, identity);
            if (is_own_rank(identity)) {
                return run_for_launcher(options, identity, std::ref(show));
            }
            records = run_all(options, identity, std::ref(show));
        }
        if (identity.rank == 0) {
            write_output("-", bench_allreduce_result(options, records));
        }
    });
}

// --- the launcher ---

// Every algorithm and number of ranks in processes of its own, one world after another. Returns
// why it ended early, if it did.
std::optional<std::string> launch_worlds(const BenchAllReduceOptions& options,
                                         const std::string& file) {
    MeasureProgress line;
    for (const std::int64_t ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.algorithms) {
            const std::string name(name_of(implementation));
            const std::optional<LaunchFailure> failure =
                launch_job(job_of(options, ranks, implementation),
                           {{algorithm_variable, name}, {output_variable, file}}, line);
            if (failure) {
                return fmt::format("{} ({} on {})", text_of(*failure), name, text_of_ranks(ranks));
            }
        }
    }
    return std::nullopt;
}

int run_launcher(const BenchAllReduceOptions& options) {
    const TemporaryFolder folder;
    const std::string file = options.output.empty() ? folder.path() + "/records" : options.output;
    check_measurement_output(file, false);
    MeasurementFile output(file);  // fails now rather than on rank 0, if it must
    output.hand_over();
    const std::optional<std::string> failure = launch_worlds(options, file);
    output.take_back();
    // What was measured before a failure still counts.
    if (output.is_in_place()) {
        write_output("-", bench_allreduce_result(options, read_measurements(file).records));
    }
    if (failure) {
        throw std::runtime_error(*failure);
    }
    output.check_in_place();
    return exit_done;
}

int run_bench(CollectiveKind kind, const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchAllReduceOptions options = bench_allreduce_options(kind, line, identity);
    if (!options.measure) {
        if (!identity || identity->rank == 0) {
            write_output("-", bench_allreduce_result(options, {}));
        }
        return exit_done;
    }
    return identity ? run_as_rank(options, *identity) : run_launcher(options);
}

}  // namespace

int run_bench_allreduce(const CommandLine& line) {
    return run_bench(CollectiveKind::all_reduce, line);
}

int run_bench_allgather(const CommandLine& line) {
    return run_bench(CollectiveKind::all_gather, line);
}

int run_bench_reducescatter(const CommandLine& line) {
    return run_bench(CollectiveKind::reduce_scatter, line);
}

}  // namespace bucketwise
