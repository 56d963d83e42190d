#include "bench/training/bench_training_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/training/prediction.h"
#include "bench/training/report.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_all_reduce.h"
#include "hw/rank/replay_rules.h"
#include "hw/record/environment.h"
#include "hw/training/image_data.h"
#include "hw/training/training_check.h"
#include "sim/base/statistics.h"
#include "sim/predict/training_memory.h"

namespace bucketwise {
namespace {

using ShowProgress = std::function<void(const std::string&)>;

constexpr std::int64_t timing_repetitions = 10;

double seconds(Duration time) {
    return to_us(time) * 1e-6;
}

void append(const std::vector<double>& more, std::vector<double>& all) {
    all.insert(all.end(), more.begin(), more.end());
}

// A hook halves it.
std::int64_t bytes_on_wire(const Bucket& bucket, CommHook hook) {
    return hook == CommHook::none ? bucket.size.count : bucket.size.count / 2;
}

// --- timing by itself ---

// A sum is predicted from means, a median from medians: an interruption now and then moves the one
// and not the other.
enum class Statistic : std::uint8_t { mean, median };

double reduced(const std::vector<double>& samples, Statistic statistic) {
    if (samples.empty()) {
        return 0;
    }
    return statistic == Statistic::median ? median(samples) : mean(samples);
}

std::vector<double> microseconds(const std::vector<Duration>& times) {
    std::vector<double> us;
    for (const Duration time : times) {
        us.push_back(to_us(time));
    }
    return us;
}

// Collective. The mean over ranks on rank 0; elsewhere this rank's own.
std::vector<double> mean_over_ranks(ControlGroup& control, const std::vector<double>& own) {
    const std::vector<double> all = control.gather_to_first(own);
    if (all.empty()) {
        return own;
    }
    std::vector<double> mean(own.size(), 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
        mean[i % own.size()] += all[i] / control.ranks();
    }
    return mean;
}

std::vector<double> as_numbers(const TrainingTimes& times) {
    std::vector<double> numbers;
    for (const auto* operations : {&times.forward, &times.backward}) {
        for (const OperationTime& time : *operations) {
            numbers.push_back(to_us(time.device));
            numbers.push_back(to_us(time.host));
        }
    }
    numbers.insert(numbers.end(), {to_us(times.optimizer.device), to_us(times.optimizer.host),
                                   to_us(times.copies), to_us(times.copy_launches)});
    return numbers;
}

void set_numbers(const std::vector<double>& numbers, TrainingTimes& times) {
    auto next = numbers.begin();
    for (auto* operations : {&times.forward, &times.backward}) {
        for (OperationTime& time : *operations) {
            time.device = duration_from_us(*next++);
            time.host = duration_from_us(*next++);
        }
    }
    times.optimizer.device = duration_from_us(*next++);
    times.optimizer.host = duration_from_us(*next++);
    times.copies = duration_from_us(*next++);
    times.copy_launches = duration_from_us(*next++);
}

// --- one implementation ---

struct TrainedSoFar {
    std::vector<double> full_steps_s;
    double time_s = 0;
    std::vector<double> losses;
};

class ImplementationOnRank {
  public:
    ImplementationOnRank(const BenchTrainingOptions& options, TrainingImplementation implementation,
                         const ImageData& data, TrainingDevice& device, ControlGroup& control)
        : implementation_(implementation),
          task_(options.task_of(implementation)),
          control_(control),
          trainer_(task_, data, device) {}

    [[nodiscard]] TrainingImplementation implementation() const { return implementation_; }
    [[nodiscard]] const TrainingTask& task() const { return task_; }
    [[nodiscard]] Trainer& trainer() { return trainer_; }
    [[nodiscard]] const TrainedSoFar& so_far() const { return so_far_; }

    // Collective. Adds to what was measured before; parameters are those of the seed then.
    void time_operations() {
        for (const auto& kind : micro_step_kinds(task_.schedule)) {
            control_.barrier();
            const std::vector<TrainingTimes> times =
                trainer_.time_operations(kind.first, kind.second, timing_repetitions);
            samples_[kind].insert(samples_[kind].end(), times.begin(), times.end());
        }
    }

    // Collective. How computing and the all-reduces of this plan's largest bucket slow each other.
    void time_contention() {
        constexpr std::int64_t iterations = 20;
        control_.barrier();
        append(microseconds(trainer_.backward_alone(iterations)), backward_alone_us_);
        control_.barrier();
        const ContentionTimes times = trainer_.contend(largest_message_bytes() / 4, iterations);
        append(microseconds(times.passes), backward_disturbed_us_);
        append(microseconds(times.all_reduces), all_reduces_disturbed_us_);
    }

    // Collective. `all_reduces_us`: by bytes, on rank 0, where alone the result means something.
    TrainingMeasurement measured(const std::map<std::int64_t, std::vector<double>>& all_reduces_us,
                                 Statistic statistic) {
        TrainingMeasurement measured;
        for (const auto& [kind, samples] : samples_) {
            measured.operations[kind] = operation_times(samples, statistic);
        }
        for (const Bucket& bucket : trainer_.plan().buckets) {
            const std::int64_t bytes = bytes_on_wire(bucket, task_.sync.comm_hook);
            measured.all_reduces[bytes] =
                duration_from_us(reduced(all_reduces_us.at(bytes), statistic));
        }
        const double pass_us = reduced(backward_alone_us_, statistic);
        // As alone where all-reduces are over before a pass is.
        const std::vector<double> slowed = mean_over_ranks(
            control_,
            {pass_us,
             backward_disturbed_us_.empty() ? pass_us : reduced(backward_disturbed_us_, statistic),
             reduced(all_reduces_disturbed_us_, statistic)});
        const double alone_us = reduced(all_reduces_us.at(largest_message_bytes()), statistic);
        measured.compute_slowdown = slowed[0] > 0 ? std::max(1.0, slowed[1] / slowed[0]) : 1.0;
        measured.communication_slowdown = alone_us > 0 ? std::max(1.0, slowed[2] / alone_us) : 1.0;
        return measured;
    }

    // Collective.
    void run_epoch(std::int64_t epoch, const std::function<void()>& show) {
        trainer_.begin_epoch(epoch);
        const std::int64_t steps = steps_per_epoch(task_.schedule);
        for (std::int64_t step = 0; step < steps; ++step) {
            const double time_s = seconds(trainer_.step(step));
            so_far_.time_s += time_s;
            if (step + 1 < steps || steps == 1) {
                so_far_.full_steps_s.push_back(time_s);
            }
            check_equal_on_all_ranks(trainer_, CheckedTensors::gradients, control_,
                                     fmt::format("after step {} of epoch {} ({})", step, epoch,
                                                 name_of(implementation_)));
            show();
        }
        const SampleResults own = trainer_.training_results();
        const std::vector<double> all =
            control_.gather_to_first(std::array{own.loss, static_cast<double>(own.samples)});
        double loss = 0;
        double samples = 0;
        for (std::size_t i = 0; i < all.size(); i += 2) {
            loss += all[i];
            samples += all[i + 1];
        }
        so_far_.losses.push_back(samples > 0 ? loss / samples : 0);
    }

    // Collective. The result on rank 0.
    TrainedImplementation finish() {
        check_equal_on_all_ranks(trainer_, CheckedTensors::parameters, control_,
                                 fmt::format("at the end ({})", name_of(implementation_)));
        const SampleResults test = trainer_.test();
        const std::vector<double> all = control_.gather_to_first(
            std::array{so_far_.time_s, median(so_far_.full_steps_s),
                       static_cast<double>(trainer_.memory().peak + workspace_bytes_),
                       static_cast<double>(peak_memory_bytes())});
        TrainedImplementation result{.implementation = implementation_, .simulated = {}};
        for (std::size_t i = 0; i < all.size(); i += 4) {
            result.ranks.push_back({.time_s = all[i],
                                    .full_step_s = all[i + 1],
                                    .max_memory_bytes = static_cast<std::int64_t>(all[i + 2]),
                                    .process_peak_bytes = static_cast<std::int64_t>(all[i + 3])});
        }
        result.losses = so_far_.losses;
        result.accuracy = static_cast<double>(test.correct) / static_cast<double>(test.samples);
        return result;
    }

    void set_workspace(std::int64_t bytes) { workspace_bytes_ = bytes; }

  private:
    [[nodiscard]] std::int64_t largest_message_bytes() const {
        std::int64_t largest = 0;
        for (const Bucket& bucket : trainer_.plan().buckets) {
            largest = std::max(largest, bytes_on_wire(bucket, task_.sync.comm_hook));
        }
        return largest;
    }

    TrainingTimes operation_times(const std::vector<TrainingTimes>& samples, Statistic statistic) {
        TrainingTimes times = samples.front();
        std::vector<std::vector<double>> by_number(as_numbers(times).size());
        for (const TrainingTimes& sample : samples) {
            const std::vector<double> numbers = as_numbers(sample);
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                by_number[i].push_back(numbers[i]);
            }
        }
        std::vector<double> own;
        for (const std::vector<double>& of_number : by_number) {
            own.push_back(reduced(of_number, statistic));
        }
        set_numbers(mean_over_ranks(control_, own), times);
        return times;
    }

    TrainingImplementation implementation_;
    TrainingTask task_;
    ControlGroup& control_;
    Trainer trainer_;
    std::map<std::pair<std::int64_t, bool>, std::vector<TrainingTimes>> samples_;
    std::vector<double> backward_alone_us_;
    std::vector<double> backward_disturbed_us_;
    std::vector<double> all_reduces_disturbed_us_;
    TrainedSoFar so_far_;
    std::int64_t workspace_bytes_ = 0;
};

// --- the job ---

class TrainingJob {
  public:
    TrainingJob(const BenchTrainingOptions& options, const RankIdentity& identity,
                ShowProgress show)
        : options_(options),
          show_(std::move(show)),
          data_(make_image_data(options.data())),
          connection_(options.backend->connect(meeting_point(options.network, identity), identity,
                                               options.request)) {}

    // Collective. Results on rank 0.
    std::vector<TrainedImplementation> run() {
        time_all_reduces();
        device_ = connection_->training();
        for (const TrainingImplementation implementation : options_.implementations) {
            ImplementationOnRank& added =
                *implementations_.emplace_back(std::make_unique<ImplementationOnRank>(
                    options_, implementation, data_, *device_, control()));
            added.set_workspace(device_->workspace_bytes());
        }
        measure();
        train();
        std::vector<TrainedImplementation> results;
        for (const auto& implementation : implementations_) {
            results.push_back(implementation->finish());
        }
        measure();  // once more: a machine that has changed meanwhile counts half
        add_predictions(results);
        control().barrier();  // nobody leaves while others may still need what it sent last
        return results;
    }

    [[nodiscard]] std::string gpu() const { return connection_->gpu(); }

  private:
    ControlGroup& control() { return connection_->control(); }

    // Of every bucket's size.
    void time_all_reduces() {
        std::set<std::int64_t> sizes;
        const CommHook hook = options_.scenario.sync.comm_hook;
        const Workload workload = step_input(options_.scenario).workload;
        for (const TrainingImplementation implementation : options_.implementations) {
            const SyncSettings sync = settings_for(options_.sync_of(implementation));
            for (const Bucket& bucket :
                 make_plan(workload.gradients, workload.readiness, sync.policy).buckets) {
                sizes.insert(bytes_on_wire(bucket, hook));
            }
        }
        const std::unique_ptr<MessageDevice> messages = connection_->messages();
        for (const std::int64_t size : sizes) {
            show_(fmt::format("0 {} timing all-reduces of {} bytes", total_steps(), size));
            const Message message{.size = Bytes{size}, .dtype = wire_dtype(hook, DType::float32)};
            const std::int64_t iterations = std::max<std::int64_t>(iterations_for(Bytes{size}), 9);
            control().barrier();
            const AllReduceTrace trace = messages->all_reduce(message, iterations);
            if (!trace.wrong.empty()) {
                throw WrongSum(trace.wrong);
            }
            append(slowest_us(control(), trace.times), all_reduces_us_[size]);
            append(microseconds(trace.issue), issue_us_);
        }
    }

    void measure() {
        for (const auto& implementation : implementations_) {
            show_(fmt::format("{} {} timing each operation of {}", steps_done_, total_steps(),
                              name_of(implementation->implementation())));
            implementation->time_operations();
            implementation->time_contention();
        }
    }

    // Implementations take turns epoch by epoch, each first as often as last, so that a machine
    // that changes does so for all alike.
    void train() {
        for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
            for (std::size_t i = 0; i < implementations_.size(); ++i) {
                const std::size_t turn = epoch % 2 == 0 ? i : implementations_.size() - 1 - i;
                ImplementationOnRank& implementation = *implementations_[turn];
                implementation.run_epoch(epoch, [&] { show_step(epoch, implementation); });
            }
        }
    }

    void show_step(std::int64_t epoch, const ImplementationOnRank& implementation) {
        ++steps_done_;
        const std::vector<double>& losses = implementation.so_far().losses;
        show_(fmt::format(
            "{} {} epoch {} of {}, {}{}", steps_done_, total_steps(), epoch + 1, options_.epochs,
            name_of(implementation.implementation()),
            losses.empty() ? "" : fmt::format(", loss of the one before {:.4f}", losses.back())));
    }

    void add_predictions(std::vector<TrainedImplementation>& results) {
        for (std::size_t i = 0; i < results.size(); ++i) {
            ImplementationOnRank& implementation = *implementations_[i];
            const auto predicted = [&](Statistic statistic) {
                TrainingMeasurement measured = implementation.measured(all_reduces_us_, statistic);
                measured.issue = duration_from_us(reduced(issue_us_, statistic));
                measured.host_is_device = device_->host_is_device();
                return predict_training(implementation.task(), implementation.trainer().workload(),
                                        measured);
            };
            results[i].simulated = predicted(Statistic::mean);
            results[i].simulated_full_step = predicted(Statistic::median).full_step;
            results[i].simulated_memory_bytes = simulated_memory(
                options_, results[i].implementation, Bytes{device_->alignment_bytes()},
                Bytes{device_->workspace_bytes()});
        }
    }

    [[nodiscard]] std::int64_t total_steps() const {
        const TrainingTask task = options_.task_of(options_.implementations.front());
        return steps_per_epoch(task.schedule) * options_.epochs *
               static_cast<std::int64_t>(options_.implementations.size());
    }

    const BenchTrainingOptions& options_;
    ShowProgress show_;
    ImageData data_;
    std::map<std::int64_t, std::vector<double>> all_reduces_us_;  // by bytes, on rank 0
    std::vector<double> issue_us_;
    std::int64_t steps_done_ = 0;
    std::unique_ptr<RankConnection> connection_;
    std::unique_ptr<TrainingDevice> device_;
    std::vector<std::unique_ptr<ImplementationOnRank>> implementations_;
};

std::string report_of(const BenchTrainingOptions& options, const RankIdentity& identity,
                      const std::string& gpu, const std::vector<TrainedImplementation>& results) {
    EnvironmentRecord record = machine_record(identity, options.network);
    record.command = options.command;
    record.gpu = gpu;
    const std::string hardware = hardware_of(record);
    const std::string backend(options.backend->name());
    const std::string about =
        fmt::format("over {}{}; {}", backend,
                    record.link_rate.empty() ? "" : " at " + record.link_rate, hardware);
    return bench_training_report(options, results, about,
                                 {{"command", options.command},
                                  {"backend", backend},
                                  {"hardware", hardware},
                                  {"libraries", options.backend->libraries()},
                                  {"link_rate", record.link_rate},
                                  {"shared_gpu", options.request.share_gpu},
                                  {"date", record.date}});
}

// Not more often than somebody could read it.
ShowProgress seldom(ShowProgress show) {
    using Clock = std::chrono::steady_clock;
    return [show = std::move(show), last = Clock::time_point{}](const std::string& text) mutable {
        if (Clock::now() - last > std::chrono::milliseconds{50}) {
            show(text);
            last = Clock::now();
        }
    };
}

}  // namespace

std::vector<std::int64_t> simulated_memory(const BenchTrainingOptions& options,
                                           TrainingImplementation implementation, Bytes alignment,
                                           Bytes workspace) {
    const TrainingTask task = options.task_of(implementation);
    std::vector<std::int64_t> by_rank;
    for (std::int64_t rank = 0; rank < task.schedule.ranks; ++rank) {
        by_rank.push_back(training_memory({.shape = task.shape,
                                           .schedule = task.schedule,
                                           .test_samples = options.test_samples,
                                           .sync = settings_for(task.sync),
                                           .optimizer = task.optimizer,
                                           .alignment = alignment,
                                           .workspace = workspace},
                                          rank)
                              .total()
                              .count);
    }
    return by_rank;
}

int run_bench_training_rank(const BenchTrainingOptions& options, const RankIdentity& identity) {
    return run_rank(identity, [&](const LauncherReport& report) {
        const bool own = is_own_rank(identity);
        MeasureProgress line;
        TrainingJob job(options, identity, seldom([&](const std::string& text) {
                            if (own) {
                                report.progress(text);
                            } else if (identity.rank == 0) {
                                line.show(text);
                            }
                        }));
        const std::vector<TrainedImplementation> results = job.run();
        if (identity.rank == 0) {
            const std::string file = environment_variable(training_report_variable).value_or("");
            write_output(own ? file : "-", report_of(options, identity, job.gpu(), results));
        }
    });
}

}  // namespace bucketwise
