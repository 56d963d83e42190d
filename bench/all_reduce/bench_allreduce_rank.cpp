#include "bench/all_reduce/bench_allreduce_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bench/all_reduce/result.h"
#include "cli/ranks/measurement_file.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "hw/backend/backend.h"
#include "hw/measure/measurer.h"
#include "hw/measure/measuring_order.h"
#include "hw/rank/isolated_all_reduce.h"

namespace bucketwise {
namespace {

using KeepRecord = std::function<void(const Measurement&)>;
using ShowProgress = std::function<void(const std::string&)>;

BackendRequest request_of(const BenchAllReduceOptions& options,
                          AllReduceImplementation implementation) {
    BackendRequest request = options.request;
    request.implementation = implementation;
    return request;
}

// All sizes of one algorithm on the ranks that were started together.
class AllReduceWorld {
  public:
    AllReduceWorld(const BenchAllReduceOptions& options, const RankIdentity& identity,
                   AllReduceImplementation implementation, ShowProgress show_progress)
        : options_(options),
          transport_(
              options.backend->transport(request_of(options, implementation), identity.ranks)),
          label_(fmt::format("{} on {} {}", name_of(implementation), identity.ranks,
                             identity.ranks == 1 ? "rank" : "ranks")),
          show_progress_(std::move(show_progress)),
          connection_(options.backend->connect(meeting_of(options, identity, implementation),
                                               identity, request_of(options, implementation))),
          messages_(connection_->messages()) {
        schedule_.rounds = options.rounds;
        schedule_.seed = options.seed;
        for (const Bytes size : options.sizes) {
            schedule_.items.push_back({.protocol = Protocol::all_reduce, .message = size});
        }
        count_worlds(identity.ranks, implementation);
    }

    [[nodiscard]] std::string gpu() const { return connection_->gpu(); }

    // Calls `keep` on rank 0.
    void run(const KeepRecord& keep) {
        meet_in_memory();
        for (const Bytes size : options_.sizes) {
            first_sums_.push_back(sum_once(size));
        }
        for (std::int64_t round = 0; round < schedule_.rounds; ++round) {
            for (const std::int32_t item : order_of_round(schedule_, round)) {
                measure(round, static_cast<std::size_t>(item), keep);
            }
        }
        // Nobody leaves while others may still need what it sent last.
        connection_->control().barrier();
    }

  private:
    // Over all ranks, on rank 0.
    struct FirstSum {
        double largest_difference = 0;
        std::int64_t peak_memory_bytes = 0;
        std::int64_t memory_before_bytes = 0;  // of the rank with that peak
    };

    // Worlds do not share a store's keys.
    static MeetingPoint meeting_of(const BenchAllReduceOptions& options,
                                   const RankIdentity& identity,
                                   AllReduceImplementation implementation) {
        MeetingPoint meeting = meeting_point(options.network, identity);
        meeting.job += fmt::format(".{}", name_of(implementation));
        return meeting;
    }

    void count_worlds(int ranks, AllReduceImplementation implementation) {
        const auto items = static_cast<std::int64_t>(options_.sizes.size()) * options_.rounds;
        const auto place = [](const auto& values, const auto& value) {
            return std::find(values.begin(), values.end(), value) - values.begin();
        };
        const auto algorithms = static_cast<std::int64_t>(options_.algorithms.size());
        done_ = items * (place(options_.ranks, ranks) * algorithms +
                         place(options_.algorithms, implementation));
        total_ = items * algorithms * static_cast<std::int64_t>(options_.ranks.size());
    }

    // Code, stacks and connections that any all-reduce needs come into memory with the first, of
    // one element; what is added later is the messages and their summing.
    void meet_in_memory() {
        connection_->control().barrier();
        static_cast<void>(messages_->all_reduce({element_size(options_.dtype), options_.dtype}, 1));
        memory_before_bytes_ = messages_->peak_memory_bytes();
    }

    // Warms up, and checks every element of the sum: once per size, because that takes longer than
    // summing where ranks share cores. Sizes come here in rising order, so that the peak of memory
    // so far belongs to this one.
    FirstSum sum_once(Bytes size) {
        show("warming up: ", size, "");
        connection_->control().barrier();
        const AllReduceTrace trace = messages_->all_reduce({size, options_.dtype}, 1);
        if (!trace.wrong.empty()) {
            throw WrongSum(trace.wrong);
        }
        const std::array own{trace.largest_difference,
                             static_cast<double>(messages_->peak_memory_bytes()),
                             static_cast<double>(memory_before_bytes_)};
        const std::vector<double> all = connection_->control().gather_to_first(own);
        FirstSum first;
        for (std::size_t i = 0; i < all.size(); i += own.size()) {
            first.largest_difference = std::max(first.largest_difference, all[i]);
            if (const auto peak = static_cast<std::int64_t>(all[i + 1]);
                peak > first.peak_memory_bytes) {
                first.peak_memory_bytes = peak;
                first.memory_before_bytes = static_cast<std::int64_t>(all[i + 2]);
            }
        }
        return first;
    }

    void measure(std::int64_t round, std::size_t item, const KeepRecord& keep) {
        const Bytes size = options_.sizes[item];
        const std::string text = fmt::format(", round {} of {}", round + 1, options_.rounds);
        show("", size, text);
        connection_->control().barrier();
        const std::vector<Duration> times = timed(size, text);
        std::vector<double> samples = slowest_us(connection_->control(), times);
        if (!samples.empty()) {
            keep(AllReduceRecord{.transport = transport_,
                                 .size = size,
                                 .dtype = options_.dtype,
                                 .round = round,
                                 .samples_us = std::move(samples),
                                 .largest_difference = first_sums_[item].largest_difference,
                                 .peak_memory_bytes = first_sums_[item].peak_memory_bytes,
                                 .memory_before_bytes = first_sums_[item].memory_before_bytes});
        }
        ++done_;
    }

    // One more than counts comes first: the sizes before have left the caches to others. Who says
    // nothing for long is taken for hung.
    std::vector<Duration> timed(Bytes size, const std::string& text) {
        const std::int64_t iterations = options_.iterations.value_or(iterations_for(size));
        std::vector<Duration> times = messages_->repeat({size, options_.dtype}, iterations + 1,
                                                        [&] { show("", size, text); });
        times.erase(times.begin());
        return times;
    }

    void show(const char* prefix, Bytes size, const std::string& text) {
        show_progress_(fmt::format("{} {} {}{}, {}{}", done_, total_, prefix, label_,
                                   message_text(size), text));
    }

    const BenchAllReduceOptions& options_;
    Transport transport_;
    std::string label_;
    ShowProgress show_progress_;
    Schedule schedule_;
    std::vector<FirstSum> first_sums_;  // by item
    std::int64_t memory_before_bytes_ = 0;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
    std::unique_ptr<RankConnection> connection_;
    std::unique_ptr<MessageDevice> messages_;
};

EnvironmentRecord environment_record(const BenchAllReduceOptions& options,
                                     const RankIdentity& identity,
                                     AllReduceImplementation implementation,
                                     const std::string& gpu) {
    EnvironmentRecord record = machine_record(identity, options.network);
    record.command = options.command;
    record.libraries = options.backend->libraries();
    record.gpu = gpu;
    record.transport =
        options.backend->transport(request_of(options, implementation), identity.ranks);
    record.seed = options.seed;
    record.rounds = options.rounds;
    return record;
}

void run_world(const BenchAllReduceOptions& options, const RankIdentity& identity,
               AllReduceImplementation implementation, const ShowProgress& show,
               const KeepRecord& keep) {
    AllReduceWorld world(options, identity, implementation, show);
    if (identity.rank == 0) {
        keep(environment_record(options, identity, implementation, world.gpu()));
    }
    world.run(keep);
}

// This process is of one world, and the launcher reads the file.
void run_for_launcher(const BenchAllReduceOptions& options, const RankIdentity& identity,
                      const LauncherReport& report) {
    const auto implementation = choice_named(environment_variable(algorithm_variable).value_or(""),
                                             options.algorithms, algorithm_variable);
    std::optional<MeasurementFile> file;
    if (identity.rank == 0) {
        file.emplace(environment_variable(output_variable).value_or(""));
    }
    run_world(
        options, identity, implementation, [&](const std::string& text) { report.progress(text); },
        [&](const Measurement& record) { file->append({record}); });
}

void run_all(const BenchAllReduceOptions& options, const RankIdentity& identity) {
    std::optional<MeasurementFile> file;
    if (identity.rank == 0 && !options.output.empty()) {
        check_measurement_output(options.output, false);
        file.emplace(options.output);
    }
    std::vector<Measurement> records;
    {
        MeasureProgress line;
        const auto show = [&](const std::string& text) {
            if (identity.rank == 0) {
                line.show(text);
            }
        };
        for (const AllReduceImplementation implementation : options.algorithms) {
            run_world(options, identity, implementation, show, [&](const Measurement& record) {
                records.push_back(record);
                if (file) {
                    file->append({record});
                }
            });
        }
    }
    if (identity.rank == 0) {
        write_output("-", bench_allreduce_result(options, records));
    }
}

}  // namespace

int run_bench_allreduce_rank(const BenchAllReduceOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        if (is_own_rank(identity)) {
            run_for_launcher(options, identity, report);
        } else {
            run_all(options, identity);
        }
    });
}

}  // namespace bucketwise
