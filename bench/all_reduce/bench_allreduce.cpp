// bucketwise bench allreduce, allgather and reducescatter: the time, memory and exactness of
// collectives on real ranks, by algorithm, size and number of ranks, beside a link's simulation and
// published all-reduces.
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
#include "bench/benches.h"
#include "cli/ranks/measurement_file.h"
#include "cli/ranks/temporary_folder.h"
#include "cli/shell/files.h"
#include "cli/shell/size.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_messages.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

RankJob job_of(const AllReduceOptions& options, std::int64_t ranks,
               AllReduceImplementation implementation) {
    RankJob job = job_of(options, ranks);
    job.request.implementation = implementation;
    return job;
}

// --- one world: all sizes of one algorithm on ranks that were started together -------------------

class AllReduceWorld {
  public:
    AllReduceWorld(const AllReduceOptions& options, const RankJob& job, RankSession& session)
        : options_(options),
          job_(job),
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
    // Over all ranks, on rank 0.
    struct FirstSum {
        double largest_difference = 0;
        std::int64_t peak_memory_bytes = 0;
        std::int64_t memory_before_bytes = 0;  // of the rank with that peak
    };

    // Warms up, and checks every element of the sum: once per size, because the check takes longer
    // than the sum where ranks share cores. Sizes come in rising order, so that the peak of memory
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
        session_.keep(
            {CollectiveRecord{.kind = options_.kind,
                              .transport = transport_of(job_),
                              .size = message.size,
                              .dtype = options_.dtype,
                              .round = round,
                              .samples_us = session_.slowest_us(times),
                              .largest_difference = first_sums_[item].largest_difference,
                              .peak_memory_bytes = first_sums_[item].peak_memory_bytes,
                              .memory_before_bytes = first_sums_[item].memory_before_bytes}});
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
    std::vector<FirstSum> first_sums_;  // by item
    std::int64_t memory_before_bytes_ = 0;
    std::unique_ptr<MessageDevice> messages_;
};

// --- a rank --------------------------------------------------------------------------------------

// Our launcher names this rank's algorithm, and reads its file. Under another launcher the ranks
// run one algorithm after another, and rank 0 prints the table.
int run_as_rank(const AllReduceOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        const bool own = is_own_rank(identity);
        std::vector<AllReduceImplementation> algorithms = options.algorithms;
        std::string path = options.output;
        if (own) {
            algorithms = {choice_named(environment_variable(algorithm_variable).value_or(""),
                                       options.algorithms, algorithm_variable)};
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
            for (const AllReduceImplementation implementation : algorithms) {
                const RankJob job = job_of(options, identity.ranks, implementation);
                // Worlds have a store's keys of their own.
                RankSession session =
                    meet(job, identity, std::ref(show), keep, name_of(implementation));
                AllReduceWorld world(options, job, session);
                EnvironmentRecord environment = environment_of(job, identity, session);
                environment.command = passed_on_command(options.command);
                session.keep({environment});
                world.run();
            }
        }
        if (!own && identity.rank == 0) {
            write_output("-", all_reduce_report(options, all));
        }
    });
}

// --- the launcher --------------------------------------------------------------------------------

// Every algorithm and number of ranks runs in processes of its own, one world after another.
// Returns the failure that ended it early, if one did.
std::optional<std::string> launch_worlds(const AllReduceOptions& options, const std::string& file) {
    MeasureProgress line;
    for (const std::int64_t ranks : options.ranks) {
        for (const AllReduceImplementation implementation : options.algorithms) {
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
        write_output("-", all_reduce_report(options, read_measurements(file).records));
    }
    if (failure) {
        throw std::runtime_error(*failure);
    }
    output.check_in_place();
    return exit_done;
}

int run_kind(CollectiveKind kind, const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const AllReduceOptions options = all_reduce_options(kind, line, identity);
    if (options.backend != nullptr) {
        return identity ? run_as_rank(options, *identity) : run_launcher(options);
    }
    if (!identity || identity->rank == 0) {
        write_output("-", all_reduce_report(options, {}));
    }
    return exit_done;
}

}  // namespace

CommandHelp bench_allreduce_help() {
    return all_reduce_help(CollectiveKind::all_reduce);
}
int run_bench_allreduce(const CommandLine& line) {
    return run_kind(CollectiveKind::all_reduce, line);
}

CommandHelp bench_allgather_help() {
    return all_reduce_help(CollectiveKind::all_gather);
}
int run_bench_allgather(const CommandLine& line) {
    return run_kind(CollectiveKind::all_gather, line);
}

CommandHelp bench_reducescatter_help() {
    return all_reduce_help(CollectiveKind::reduce_scatter);
}
int run_bench_reducescatter(const CommandLine& line) {
    return run_kind(CollectiveKind::reduce_scatter, line);
}

}  // namespace bucketwise
