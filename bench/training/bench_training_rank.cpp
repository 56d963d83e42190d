#include "bench/training/bench_training_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bench/training/prediction.h"
#include "bench/training/report.h"
#include "cli/ranks/rank_bench.h"
#include "cli/shell/files.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_all_reduce.h"
#include "hw/rank/replay_rules.h"
#include "hw/record/environment.h"
#include "hw/training/image_data.h"
#include "hw/training/training_check.h"
#include "sim/base/statistics.h"
#include "sim/predict/training.h"

// Exactly, in the unit it counts in.
template <>
struct nlohmann::adl_serializer<bucketwise::Duration> {
    static void to_json(json& document, bucketwise::Duration time) { document = time.count(); }
    static void from_json(const json& document, bucketwise::Duration& time) {
        time = bucketwise::Duration{document.get<bucketwise::Duration::rep>()};
    }
};

namespace bucketwise {
namespace {

// What rank 0 hands to the process that prints.
struct TrainingRun {
    std::string hardware;
    std::string libraries;
    std::string link_rate;
    std::string date;
    std::vector<TrainedImplementation> results;
};

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingTime, full_step, last_step, full_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedRank, time_s, full_step_s, max_memory_bytes,
                                   process_peak_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedImplementation, implementation, simulated,
                                   simulated_full_step, simulated_memory_bytes, ranks, losses,
                                   accuracy)

namespace {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingRun, hardware, libraries, link_rate, date, results)

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

// Every time in one order, for who reads and who writes.
template <typename Times, typename Visit>
void visit_times(Times& times, const Visit& visit) {
    for (auto* operations : {&times.forward, &times.backward}) {
        for (auto& time : *operations) {
            visit(time.device);
            visit(time.host);
        }
    }
    for (auto* time :
         {&times.optimizer.device, &times.optimizer.host, &times.copies, &times.copy_launches}) {
        visit(*time);
    }
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
                         const ImageData& data, TrainingDevice& device, RankSession& session)
        : implementation_(implementation),
          task_(options.task_of(implementation)),
          session_(session),
          trainer_(task_, data, device),
          workspace_bytes_(device.workspace_bytes()) {}

    [[nodiscard]] TrainingImplementation implementation() const { return implementation_; }
    [[nodiscard]] const TrainingTask& task() const { return task_; }
    [[nodiscard]] Trainer& trainer() { return trainer_; }
    [[nodiscard]] const TrainedSoFar& so_far() const { return so_far_; }

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
            const double time_s = seconds(trainer_.step(step));
            so_far_.time_s += time_s;
            if (step + 1 < steps || steps == 1) {
                so_far_.full_steps_s.push_back(time_s);
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
        so_far_.losses.push_back(samples > 0 ? loss / samples : 0);
    }

    // Collective. The result on rank 0.
    TrainedImplementation finish() {
        check_equal_on_all_ranks(trainer_, CheckedTensors::parameters, session_.control(),
                                 fmt::format("at the end ({})", name_of(implementation_)));
        const SampleResults test = trainer_.test();
        TrainedImplementation result{.implementation = implementation_, .simulated = {}};
        for (const std::vector<double>& of_rank : session_.gather(
                 std::array{so_far_.time_s, median(so_far_.full_steps_s),
                            static_cast<double>(trainer_.memory().peak + workspace_bytes_),
                            static_cast<double>(peak_memory_bytes())})) {
            result.ranks.push_back({.time_s = of_rank[0],
                                    .full_step_s = of_rank[1],
                                    .max_memory_bytes = static_cast<std::int64_t>(of_rank[2]),
                                    .process_peak_bytes = static_cast<std::int64_t>(of_rank[3])});
        }
        result.losses = so_far_.losses;
        result.accuracy = static_cast<double>(test.correct) / static_cast<double>(test.samples);
        return result;
    }

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
        std::vector<std::vector<double>> by_number;
        for (const TrainingTimes& sample : samples) {
            std::size_t i = 0;
            visit_times(sample, [&](const Duration& time) {
                by_number.resize(std::max(by_number.size(), i + 1));
                by_number[i++].push_back(to_us(time));
            });
        }
        std::vector<double> own;
        for (const std::vector<double>& of_number : by_number) {
            own.push_back(reduced(of_number, statistic));
        }
        const std::vector<double> mean = mean_over_ranks(session_, own);
        auto next = mean.begin();
        visit_times(times, [&](Duration& time) { time = duration_from_us(*next++); });
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
    TrainedSoFar so_far_;
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
            const SyncSettings sync = settings_for(options_.sync_of(implementation));
            for (const Bucket& bucket :
                 make_plan(workload.gradients, workload.readiness, sync.policy).buckets) {
                sizes.insert(bytes_on_wire(bucket, hook));
            }
        }
        const std::unique_ptr<MessageDevice> messages = session_.connection().messages();
        for (const std::int64_t size : sizes) {
            show(fmt::format("timing all-reduces of {} bytes", size));
            const Message message{.size = Bytes{size}, .dtype = wire_dtype(hook, DType::float32)};
            const std::int64_t iterations = std::max<std::int64_t>(iterations_for(Bytes{size}), 9);
            session_.control().barrier();
            const AllReduceTrace trace = messages->all_reduce(message, iterations);
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
        const std::vector<double>& losses = implementation.so_far().losses;
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
            results[i].simulated_memory_bytes = simulated_memory(
                options_, results[i].implementation, Bytes{device_->alignment_bytes()},
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

void print(const BenchTrainingOptions& options, const TrainingRun& run) {
    const std::string backend(options.backend->name());
    const std::string about =
        fmt::format("over {}{}; {}", backend, run.link_rate.empty() ? "" : " at " + run.link_rate,
                    run.hardware);
    write_output("-", bench_training_report(options, run.results, about,
                                            {{"command", options.command},
                                             {"backend", backend},
                                             {"hardware", run.hardware},
                                             {"libraries", run.libraries},
                                             {"link_rate", run.link_rate},
                                             {"shared_gpu", options.request.share_gpu},
                                             {"date", run.date}}));
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

int run_bench_training_ranks(const BenchTrainingOptions& options,
                             const std::optional<RankIdentity>& identity) {
    if (!identity) {
        check_published(options.published);  // fails now rather than at the end
    }
    const RankJob job = job_of(options, options.scenario.group.ranks);
    return run_rank_bench<TrainingRun>(
        job, identity,
        [&](RankSession& session) {
            TrainingRun run;
            run.results = TrainingJob(options, session).run();
            EnvironmentRecord environment = environment_of(job, identity.value(), session);
            environment.transport = {};  // that ranks share a GPU is said apart
            run.hardware = hardware_of(environment);
            run.libraries = environment.libraries;
            run.link_rate = environment.link_rate;
            run.date = environment.date;
            return run;
        },
        [&](const TrainingRun& run) { print(options, run); });
}

}  // namespace bucketwise
