// bucketwise bench training: a data-parallel training run, simulated and on real ranks.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/training/options.h"
#include "bench/training/prediction.h"
#include "bench/training/report.h"
#include "cli/ranks/rank_bench.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/replay_rules.h"
#include "hw/record/environment.h"
#include "hw/training/image_data.h"
#include "hw/training/training_check.h"
#include "sim/base/statistics.h"
#include "sim/text/passed_on.h"

// Exactly, in the unit it counts in.
template <>
struct nlohmann::adl_serializer<bucketwise::Duration> {
    static void to_json(json& document, bucketwise::Duration time) { document = time.count(); }
    static void from_json(const json& document, bucketwise::Duration& time) {
        time = bucketwise::Duration{document.get<bucketwise::Duration::rep>()};
    }
};

namespace bucketwise {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingTime, full_step, last_step, full_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedRank, time_s, full_step_s, max_memory_bytes,
                                   process_peak_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedImplementation, implementation, simulated,
                                   simulated_full_step, simulated_memory_bytes, ranks, losses,
                                   accuracy)

namespace {

constexpr std::int64_t timing_repetitions = 10;

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

// Collective. The mean over ranks on rank 0; elsewhere this rank's own.
std::vector<double> mean_over_ranks(const RankSession& session, const std::vector<double>& own) {
    const std::vector<std::vector<double>> by_rank = session.gather(own);
    if (by_rank.empty()) {
        return own;
    }
    std::vector<double> mean(own.size(), 0);
    for (const std::vector<double>& of_rank : by_rank) {
        for (std::size_t i = 0; i < mean.size(); ++i) {
            mean[i] += of_rank[i] / session.control().ranks();
        }
    }
    return mean;
}

// Always in one order, for who reads and who writes.
std::vector<Duration*> all_times(TrainingTimes& times) {
    std::vector<Duration*> all{&times.optimizer.device, &times.optimizer.host, &times.copies,
                               &times.copy_launches};
    for (auto* operations : {&times.forward, &times.backward}) {
        for (OperationTime& time : *operations) {
            all.insert(all.end(), {&time.device, &time.host});
        }
    }
    return all;
}

// --- one implementation ---

class ImplementationOnRank {
  public:
    ImplementationOnRank(const BenchTrainingOptions& options, TrainingImplementation implementation,
                         const ImageData& data, TrainingDevice& device, RankSession& session)
        : implementation_(implementation),
          task_(options.task_of(implementation)),
          session_(session),
          trainer_(task_, data, device),
          workspace_bytes_(device.workspace_bytes()) {}

    [[nodiscard]] TrainingImplementation implementation() const { return implementation_; }
    [[nodiscard]] const TrainingTask& task() const { return task_; }
    [[nodiscard]] Trainer& trainer() { return trainer_; }
    [[nodiscard]] const std::vector<double>& losses() const { return losses_; }

    // Collective. Adds to what was measured before; parameters are those of the seed then.
    void time_operations() {
        for (const auto& kind : micro_step_kinds(task_.schedule)) {
            session_.control().barrier();
            const std::vector<TrainingTimes> times =
                trainer_.time_operations(kind.first, kind.second, timing_repetitions);
            samples_[kind].insert(samples_[kind].end(), times.begin(), times.end());
        }
    }

    // Collective. How computing and the all-reduces of this plan's largest bucket slow each other.
    void time_contention() {
        constexpr std::int64_t iterations = 20;
        session_.control().barrier();
        append(microseconds(trainer_.backward_alone(iterations)), backward_alone_us_);
        session_.control().barrier();
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
            session_,
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
            const double time_s = to_us(trainer_.step(step)) * 1e-6;
            time_s_ += time_s;
            if (step + 1 < steps || steps == 1) {
                full_steps_s_.push_back(time_s);
            }
            check_equal_on_all_ranks(trainer_, CheckedTensors::gradients, session_.control(),
                                     fmt::format("after step {} of epoch {} ({})", step, epoch,
                                                 name_of(implementation_)));
            show();
        }
        const SampleResults own = trainer_.training_results();
        double loss = 0;
        double samples = 0;
        for (const std::vector<double>& of_rank :
             session_.gather(std::array{own.loss, static_cast<double>(own.samples)})) {
            loss += of_rank[0];
            samples += of_rank[1];
        }
        losses_.push_back(samples > 0 ? loss / samples : 0);
    }

    // Collective. The result on rank 0.
    TrainedImplementation finish() {
        check_equal_on_all_ranks(trainer_, CheckedTensors::parameters, session_.control(),
                                 fmt::format("at the end ({})", name_of(implementation_)));
        const SampleResults test = trainer_.test();
        TrainedImplementation result{.implementation = implementation_, .simulated = {}};
        for (const std::vector<double>& of_rank : session_.gather(
                 std::array{time_s_, median(full_steps_s_),
                            static_cast<double>(trainer_.memory().peak + workspace_bytes_),
                            static_cast<double>(peak_memory_bytes())})) {
            result.ranks.push_back({.time_s = of_rank[0],
                                    .full_step_s = of_rank[1],
                                    .max_memory_bytes = static_cast<std::int64_t>(of_rank[2]),
                                    .process_peak_bytes = static_cast<std::int64_t>(of_rank[3])});
        }
        result.losses = losses_;
        result.accuracy = static_cast<double>(test.correct) / static_cast<double>(test.samples);
        return result;
    }

  private:
    [[nodiscard]] std::int64_t largest_message_bytes() const {
        return std::ranges::max(transformed(trainer_.plan().buckets, [&](const Bucket& bucket) {
            return bytes_on_wire(bucket, task_.sync.comm_hook);
        }));
    }

    TrainingTimes operation_times(const std::vector<TrainingTimes>& samples, Statistic statistic) {
        TrainingTimes times = samples.front();
        std::vector<std::vector<double>> by_number;
        for (TrainingTimes sample : samples) {
            const std::vector<Duration*> numbers = all_times(sample);
            by_number.resize(numbers.size());
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                by_number[i].push_back(to_us(*numbers[i]));
            }
        }
        const std::vector<double> mean =
            mean_over_ranks(session_, transformed(by_number, [&](const auto& of_number) {
                                return reduced(of_number, statistic);
                            }));
        auto next = mean.begin();
        for (Duration* time : all_times(times)) {
            *time = duration_from_us(*next++);
        }
        return times;
    }

    TrainingImplementation implementation_;
    TrainingTask task_;
    RankSession& session_;
    Trainer trainer_;
    std::map<std::pair<std::int64_t, bool>, std::vector<TrainingTimes>> samples_;
    std::vector<double> backward_alone_us_;
    std::vector<double> backward_disturbed_us_;
    std::vector<double> all_reduces_disturbed_us_;
    std::vector<double> full_steps_s_;
    double time_s_ = 0;  // of all steps
    std::vector<double> losses_;
    std::int64_t workspace_bytes_;
};

// --- the job ---

class TrainingJob {
  public:
    TrainingJob(const BenchTrainingOptions& options, RankSession& session)
        : options_(options), session_(session), data_(make_image_data(options.data())) {
        const TrainingTask task = options.task_of(options.implementations.front());
        session.expect(steps_per_epoch(task.schedule) * options.epochs *
                       std::ssize(options.implementations));
    }

    // Collective. Results on rank 0.
    std::vector<TrainedImplementation> run() {
        time_all_reduces();
        device_ = session_.connection().training();
        for (const TrainingImplementation implementation : options_.implementations) {
            implementations_.push_back(std::make_unique<ImplementationOnRank>(
                options_, implementation, data_, *device_, session_));
        }
        measure();
        train();
        std::vector<TrainedImplementation> results;
        for (const auto& implementation : implementations_) {
            results.push_back(implementation->finish());
        }
        measure();  // once more: a machine that has changed meanwhile counts half
        add_predictions(results);
        return results;
    }

  private:
    // Messages of every bucket's size.
    void time_all_reduces() {
        std::set<std::int64_t> sizes;
        const CommHook hook = options_.scenario.sync.comm_hook;
        const Workload workload = step_input(options_.scenario).workload;
        for (const TrainingImplementation implementation : options_.implementations) {
            const SyncSettings sync = settings_of_replay(options_.sync_of(implementation));
            for (const Bucket& bucket : make_plan(workload, sync.policy).buckets) {
                sizes.insert(bytes_on_wire(bucket, hook));
            }
        }
        const std::unique_ptr<MessageDevice> messages = session_.connection().messages();
        for (const std::int64_t size : sizes) {
            show(fmt::format("timing all-reduces of {} bytes", size));
            const Message message{.size = Bytes{size}, .dtype = wire_dtype(hook, DType::float32)};
            const std::int64_t iterations = std::max<std::int64_t>(iterations_for(Bytes{size}), 9);
            session_.control().barrier();
            const MessageTrace trace = messages->measure(message, iterations);
            if (!trace.wrong.empty()) {
                throw WrongSum(trace.wrong);
            }
            append(session_.slowest_us(trace.times), all_reduces_us_[size]);
            append(microseconds(trace.issue), issue_us_);
        }
    }

    void measure() {
        for (const auto& implementation : implementations_) {
            show(fmt::format("timing each operation of {}",
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
        session_.item_done();
        const std::vector<double>& losses = implementation.losses();
        show(fmt::format(
            "epoch {} of {}, {}{}", epoch + 1, options_.epochs,
            name_of(implementation.implementation()),
            losses.empty() ? "" : fmt::format(", loss of the one before {:.4f}", losses.back())));
    }

    // Not more often than somebody could read it.
    void show(const std::string& text) {
        using Clock = std::chrono::steady_clock;
        if (Clock::now() - shown_ > std::chrono::milliseconds{50}) {
            session_.show(text);
            shown_ = Clock::now();
        }
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
            results[i].simulated_memory_bytes = predict_memory(
                implementation.task(), options_.test_samples, Bytes{device_->alignment_bytes()},
                Bytes{device_->workspace_bytes()});
        }
    }

    const BenchTrainingOptions& options_;
    RankSession& session_;
    ImageData data_;
    std::map<std::int64_t, std::vector<double>> all_reduces_us_;  // by bytes, on rank 0
    std::vector<double> issue_us_;
    std::chrono::steady_clock::time_point shown_;
    std::unique_ptr<TrainingDevice> device_;
    std::vector<std::unique_ptr<ImplementationOnRank>> implementations_;
};

void print(const BenchTrainingOptions& options, EnvironmentRecord environment,
           const std::vector<TrainedImplementation>& results) {
    environment.transport = {};  // that ranks share a GPU is said apart
    const std::string backend(options.backend->name());
    const std::string hardware = hardware_of(environment);
    const std::string& link_rate = environment.link_rate;
    write_output("-", bench_training_report(
                          options, results,
                          fmt::format("over {}{}; {}", backend,
                                      link_rate.empty() ? "" : " at " + link_rate, hardware),
                          {{"command", passed_on_command(options.command)},
                           {"backend", backend},
                           {"hardware", hardware},
                           {"libraries", environment.libraries},
                           {"link_rate", link_rate},
                           {"shared_gpu", options.request.share_gpu},
                           {"date", environment.date}}));
}

int run_ranks(const BenchTrainingOptions& options, const std::optional<RankIdentity>& identity) {
    if (!identity) {
        check_published(options.published);  // fails now rather than at the end
    }
    return run_rank_bench<std::vector<TrainedImplementation>>(
        job_of(options, options.scenario.group.ranks), identity,
        [&](RankSession& session) { return TrainingJob(options, session).run(); },
        [&](const EnvironmentRecord& environment, const auto& results) {
            print(options, environment, results);
        });
}

// --- without ranks ---

int simulate_training(const BenchTrainingOptions& options) {
    // What a GPU's memory and cuBLAS's workspace come to in hw/nccl; on a CPU blocks start on cache
    // lines.
    const auto& device = std::get<ModelWorkload>(options.scenario.workload).device;
    const bool is_cpu = device && device->host_is_device;
    const Bytes alignment{is_cpu ? 64 : 256};
    const Bytes workspace = is_cpu ? Bytes{} : 32 * Bytes{bytes_per_mib};
    std::vector<TrainedImplementation> results;
    for (const TrainingImplementation implementation : options.implementations) {
        const TrainingTask task = options.task_of(implementation);
        const TrainingTime time = predict_training(task, options.scenario);
        results.push_back({.implementation = implementation,
                           .simulated = time,
                           .simulated_full_step = time.full_step,
                           .simulated_memory_bytes =
                               predict_memory(task, options.test_samples, alignment, workspace)});
    }
    write_output("-", bench_training_report(
                          options, results, "simulated over " + options.scenario.link.name,
                          {{"command", passed_on_command(options.command)}, {"date", utc_now()}}));
    return exit_done;
}

}  // namespace

int run_bench_training(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const BenchTrainingOptions options = bench_training_options(line, identity);
    return options.simulate ? simulate_training(options) : run_ranks(options, identity);
}

}  // namespace bucketwise
