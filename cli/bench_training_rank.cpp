#include "cli/bench_training_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/statistics.h"
#include "cli/bench_training_report.h"
#include "cli/files.h"
#include "cli/progress.h"
#include "cli/training_prediction.h"
#include "hw/environment.h"
#include "hw/isolated_all_reduce.h"
#include "hw/measurer.h"
#include "hw/training/image_data.h"
#include "hw/training/training_check.h"
#include "sim/training_memory.h"

namespace bucketwise {
namespace {

using ShowProgress = std::function<void(const std::string&)>;

constexpr std::int64_t timing_repetitions = 7;

double seconds(Duration time) {
    return to_us(time) * 1e-6;
}

Duration duration(double us) {
    return duration_from_us(us);
}

double median_us(const std::vector<Duration>& times) {
    std::vector<double> us;
    for (const Duration time : times) {
        us.push_back(to_us(time));
    }
    return us.empty() ? 0 : median(us);
}

DType wire_dtype(CommHook hook) {
    return hook == CommHook::none   ? DType::float32
           : hook == CommHook::bf16 ? DType::bfloat16
                                    : DType::float16;
}

// --- timing by itself ---

// Sums of repeated measurements, each of them the same list of numbers on every rank.
class MeanOverRanks {
  public:
    explicit MeanOverRanks(ControlGroup& control) : control_(control) {}

    // Collective. The mean over ranks on rank 0; elsewhere this rank's own.
    std::vector<double> operator()(const std::vector<double>& own) const {
        const std::vector<double> all = control_.gather_to_first(own);
        if (all.empty()) {
            return own;
        }
        std::vector<double> mean(own.size(), 0);
        const double ranks = control_.ranks();
        for (std::size_t i = 0; i < all.size(); ++i) {
            mean[i % own.size()] += all[i] / ranks;
        }
        return mean;
    }

  private:
    ControlGroup& control_;
};

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
            time.device = duration(*next++);
            time.host = duration(*next++);
        }
    }
    times.optimizer.device = duration(*next++);
    times.optimizer.host = duration(*next++);
    times.copies = duration(*next++);
    times.copy_launches = duration(*next++);
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
    TrainingMeasurement& measured() { return measured_; }
    [[nodiscard]] const TrainedSoFar& so_far() const { return so_far_; }

    // Collective. What was measured before counts as much. Parameters are those of the seed then.
    void time_operations() {
        const MeanOverRanks mean(control_);
        for (const auto& kind : micro_step_kinds(task_.schedule)) {
            control_.barrier();
            TrainingTimes times =
                trainer_.time_operations(kind.first, kind.second, timing_repetitions);
            std::vector<double> numbers = mean(as_numbers(times));
            const auto before = measured_.operations.find(kind);
            if (before != measured_.operations.end()) {
                const std::vector<double> earlier = as_numbers(before->second);
                for (std::size_t i = 0; i < numbers.size(); ++i) {
                    numbers[i] = (numbers[i] + earlier[i]) / 2;
                }
            }
            set_numbers(numbers, times);
            measured_.operations[kind] = times;
        }
    }

    // Collective. How computing and the all-reduces of this plan's largest bucket slow each other.
    void time_contention() {
        Bytes largest;
        for (const Bucket& bucket : trainer_.plan().buckets) {
            largest = std::max(largest, bucket.size);
        }
        constexpr std::int64_t iterations = 20;
        control_.barrier();
        const double alone_us = median_us(trainer_.backward_alone(iterations));
        control_.barrier();
        const ContentionTimes times = trainer_.contend(largest.count / 4, iterations);
        const std::vector<double> slowed = MeanOverRanks(control_)(
            {alone_us, times.passes.empty() ? alone_us : median_us(times.passes),
             median_us(times.all_reduces)});
        if (slowed[0] > 0) {
            measured_.compute_slowdown = std::max(1.0, slowed[1] / slowed[0]);
        }
        contended_us_ = slowed[2];
        contended_bytes_ = largest.count;
    }

    // Once all-reduces have been timed alone.
    void compare_contention() {
        const auto alone = measured_.all_reduces.find(contended_bytes_);
        if (alone != measured_.all_reduces.end() && alone->second > Duration{0}) {
            measured_.communication_slowdown = std::max(1.0, contended_us_ / to_us(alone->second));
        }
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
    TrainingImplementation implementation_;
    TrainingTask task_;
    ControlGroup& control_;
    Trainer trainer_;
    TrainingMeasurement measured_;
    TrainedSoFar so_far_;
    double contended_us_ = 0;
    std::int64_t contended_bytes_ = 0;
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
                sizes.insert(hook == CommHook::none ? bucket.size.count : bucket.size.count / 2);
            }
        }
        const std::unique_ptr<MessageDevice> messages = connection_->messages();
        for (const std::int64_t size : sizes) {
            show_(fmt::format("0 {} timing all-reduces of {} bytes", total_steps(), size));
            const Message message{.size = Bytes{size}, .dtype = wire_dtype(hook)};
            const std::int64_t iterations = std::max<std::int64_t>(iterations_for(Bytes{size}), 9);
            control().barrier();
            const AllReduceTrace trace = messages->all_reduce(message, iterations);
            if (!trace.wrong.empty()) {
                throw WrongSum(trace.wrong);
            }
            const std::vector<double> slowest = slowest_us(control(), trace.times);
            all_reduces_[size] = duration(slowest.empty() ? 0 : median(slowest));
            issue_ = std::max(issue_, duration(median_us(trace.issue)));
        }
    }

    void measure() {
        for (const auto& implementation : implementations_) {
            show_(fmt::format("{} {} timing each operation of {}", steps_done_, total_steps(),
                              name_of(implementation->implementation())));
            implementation->time_operations();
            if (steps_done_ == 0) {
                implementation->time_contention();
            }
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
            TrainingMeasurement& measured = implementation.measured();
            for (const Bucket& bucket : implementation.trainer().plan().buckets) {
                const std::int64_t bytes = options_.scenario.sync.comm_hook == CommHook::none
                                               ? bucket.size.count
                                               : bucket.size.count / 2;
                measured.all_reduces[bytes] = all_reduces_.at(bytes);
            }
            measured.issue = issue_;
            measured.host_is_device = device_->host_is_device();
            implementation.compare_contention();
            results[i].simulated = predict_training(implementation.task(),
                                                    implementation.trainer().workload(), measured);
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
    std::map<std::int64_t, Duration> all_reduces_;  // by bytes
    Duration issue_{0};
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
