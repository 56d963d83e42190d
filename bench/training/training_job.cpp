// The real ranks of bench training.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/training/training.h"
#include "hw/measure/measurer.h"
#include "hw/rank/isolated_messages.h"
#include "hw/record/environment.h"
#include "hw/training/image_data.h"
#include "hw/training/training_check.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/program/program.h"

namespace bucketwise {
namespace {

// A sum is predicted from means, a median from medians: a rare interruption moves only the mean.
using Statistic = std::function<double(const std::vector<double>& samples)>;

double reduced(const std::vector<double>& samples, const Statistic& statistic) {
    return samples.empty() ? 0 : statistic(samples);
}

void append_us(const std::vector<Duration>& more, std::vector<double>& all) {
    for (const Duration time : more) {
        all.push_back(to_us(time));
    }
}

// A communication hook halves it.
std::int64_t bytes_on_wire(const Bucket& bucket, CommHook hook) {
    return hook == CommHook::none ? bucket.size.count : bucket.size.count / 2;
}

// Collective. The mean over ranks on rank 0; elsewhere this rank's own.
std::vector<double> mean_over_ranks(const RankSession& session, const std::vector<double>& own) {
    const std::vector<std::vector<double>> by_rank = session.gather(own);
    std::vector<double> mean(by_rank.empty() ? own : std::vector<double>(own.size(), 0));
    for (const std::vector<double>& of_rank : by_rank) {
        for (std::size_t i = 0; i < mean.size(); ++i) {
            mean[i] += of_rank[i] / session.control().ranks();
        }
    }
    return mean;
}

// Every time of a micro-step, in a fixed order.
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

// --- one implementation; all of its functions are collective -------------------------------------

class ImplementationOnRank {
  public:
    ImplementationOnRank(const TrainingOptions& options, TrainingImplementation implementation,
                         const ImageData& data, TrainingDevice& device, RankSession& session)
        : options_(options),
          implementation_(implementation),
          name_(name_of(implementation)),
          task_(options.task_of(implementation)),
          session_(session),
          trainer_(task_, data, device),
          device_(device) {}

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::vector<double>& losses() const { return losses_; }

    // Adds to earlier measurements. Resets the parameters to those of the seed.
    void time_operations() {
        constexpr std::int64_t repetitions = 10;
        for (const MicroStepKind& kind : micro_step_kinds(task_.schedule)) {
            session_.control().barrier();
            const std::vector<TrainingTimes> times =
                trainer_.time_operations(kind.first, kind.second, repetitions);
            samples_[kind].insert(samples_[kind].end(), times.begin(), times.end());
        }
    }

    // How computing and the all-reduces of this plan's largest bucket slow each other.
    void time_contention() {
        constexpr std::int64_t iterations = 20;
        session_.control().barrier();
        append_us(trainer_.backward_alone(iterations), backward_alone_us_);
        session_.control().barrier();
        const ContentionTimes times = trainer_.contend(largest_message_bytes() / 4, iterations);
        append_us(times.passes, backward_disturbed_us_);
        append_us(times.all_reduces, all_reduces_disturbed_us_);
    }

    // `all_reduces_us`: by bytes, on rank 0. The result counts there only.
    TrainingMeasurement measured(const std::map<std::int64_t, std::vector<double>>& all_reduces_us,
                                 const Statistic& statistic) {
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
        // No pass was disturbed where the all-reduces ended before it.
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

    void run_epoch(std::int64_t epoch, const std::function<void()>& show) {
        trainer_.begin_epoch(epoch);
        const std::int64_t steps = steps_per_epoch(task_.schedule);
        for (std::int64_t step = 0; step < steps; ++step) {
            const double time_s = to_us(trainer_.step(step)) * 1e-6;
            time_s_ += time_s;
            if (step + 1 < steps || steps == 1) {
                full_steps_s_.push_back(time_s);
            }
            check_equal_on_all_ranks(
                trainer_, CheckedTensors::gradients, session_.control(),
                fmt::format("after step {} of epoch {} ({})", step, epoch, name_));
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

    // Ends the training. The measured cells by rank, on rank 0.
    BenchRows finish() {
        check_equal_on_all_ranks(trainer_, CheckedTensors::parameters, session_.control(),
                                 fmt::format("at the end ({})", name_));
        const SampleResults test = trainer_.test();
        BenchRows rows;
        for (const std::vector<double>& of_rank : session_.gather(
                 std::array{time_s_, median(full_steps_s_),
                            static_cast<double>(trainer_.memory().peak + device_.workspace_bytes()),
                            static_cast<double>(peak_memory_bytes())})) {
            rows.push_back({{"time_s", of_rank[0]},
                            {"step_s", of_rank[1]},
                            {"max_memory_bytes", static_cast<std::int64_t>(of_rank[2])},
                            {"process_peak_bytes", static_cast<std::int64_t>(of_rank[3])},
                            {"loss", losses_.back()},
                            {"accuracy", static_cast<double>(test.correct) /
                                             static_cast<double>(test.samples)}});
        }
        if (!rows.empty()) {
            rows.front()["losses"] = losses_;
        }
        return rows;
    }

    // Collective. Adds the prediction to the rows of finish().
    void predict(const std::map<std::int64_t, std::vector<double>>& all_reduces_us,
                 const std::vector<double>& issue_us, BenchRows& rows) {
        const auto predicted = [&](const Statistic& statistic) {
            TrainingMeasurement alone = measured(all_reduces_us, statistic);
            alone.issue = duration_from_us(reduced(issue_us, statistic));
            alone.host_is_device = device_.host_is_device();
            return predict_training(task_, trainer_.workload(), alone);
        };
        const TrainingTime time = predicted([](const auto& samples) { return mean(samples); });
        const Duration full_step =
            predicted([](const auto& samples) { return median(samples); }).full_step;
        const std::vector<std::int64_t> memory =
            predict_memory(task_, options_.test_samples, Bytes{device_.alignment_bytes()},
                           Bytes{device_.workspace_bytes()});
        for (std::size_t rank = 0; rank < rows.size(); ++rank) {
            rows[rank].update(simulated_row(options_, implementation_,
                                            static_cast<std::int64_t>(rank), time, full_step,
                                            memory[rank]));
        }
    }

  private:
    [[nodiscard]] std::int64_t largest_message_bytes() const {
        return std::ranges::max(transformed(trainer_.plan().buckets, [&](const Bucket& bucket) {
            return bytes_on_wire(bucket, task_.sync.comm_hook);
        }));
    }

    TrainingTimes operation_times(const std::vector<TrainingTimes>& samples,
                                  const Statistic& statistic) {
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

    const TrainingOptions& options_;
    TrainingImplementation implementation_;
    std::string name_;
    TrainingTask task_;
    RankSession& session_;
    Trainer trainer_;
    TrainingDevice& device_;
    std::map<MicroStepKind, std::vector<TrainingTimes>> samples_;
    std::vector<double> backward_alone_us_;
    std::vector<double> backward_disturbed_us_;
    std::vector<double> all_reduces_disturbed_us_;
    std::vector<double> full_steps_s_;
    double time_s_ = 0;           // of all steps
    std::vector<double> losses_;  // by epoch
};

// --- the job; all of its functions are collective ------------------------------------------------

class TrainingJob {
  public:
    TrainingJob(const TrainingOptions& options, RankSession& session)
        : options_(options), session_(session), data_(make_image_data(options.data())) {
        const TrainingTask task = options.task_of(options.implementations.front());
        session.expect(steps_per_epoch(task.schedule) * options.epochs *
                       std::ssize(options.implementations));
    }

    BenchRows run() {
        time_all_reduces();
        device_ = session_.connection().training();
        for (const TrainingImplementation implementation : options_.implementations) {
            implementations_.push_back(std::make_unique<ImplementationOnRank>(
                options_, implementation, data_, *device_, session_));
        }
        measure();
        train();
        std::vector<BenchRows> by_implementation = transformed(
            implementations_, [](const auto& implementation) { return implementation->finish(); });
        measure();  // once more: a machine that has changed meanwhile counts half
        BenchRows rows;
        for (std::size_t i = 0; i < implementations_.size(); ++i) {
            implementations_[i]->predict(all_reduces_us_, issue_us_, by_implementation[i]);
            std::ranges::move(by_implementation[i], std::back_inserter(rows));
        }
        return rows;
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
            all_reduces_us_[size] = session_.slowest_us(trace.times);
            append_us(trace.issue, issue_us_);
        }
    }

    void measure() {
        for (const auto& implementation : implementations_) {
            show(fmt::format("timing each operation of {}", implementation->name()));
            implementation->time_operations();
            implementation->time_contention();
        }
    }

    // Implementations take turns epoch by epoch, each first equally often, so that a machine that
    // changes does so for all alike.
    void train() {
        for (std::int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
            for (std::size_t i = 0; i < implementations_.size(); ++i) {
                ImplementationOnRank& implementation =
                    *implementations_[epoch % 2 == 0 ? i : implementations_.size() - 1 - i];
                implementation.run_epoch(epoch, [&] {
                    const std::vector<double>& losses = implementation.losses();
                    session_.item_done();
                    show(fmt::format(
                        "epoch {} of {}, {}{}", epoch + 1, options_.epochs, implementation.name(),
                        losses.empty()
                            ? ""
                            : fmt::format(", loss of the one before {:.4f}", losses.back())));
                });
            }
        }
    }

    // At most 20 times a second.
    void show(const std::string& text) {
        using Clock = std::chrono::steady_clock;
        if (Clock::now() - shown_ > std::chrono::milliseconds{50}) {
            session_.show(text);
            shown_ = Clock::now();
        }
    }

    const TrainingOptions& options_;
    RankSession& session_;
    ImageData data_;
    std::map<std::int64_t, std::vector<double>> all_reduces_us_;  // by bytes, on rank 0
    std::vector<double> issue_us_;
    std::chrono::steady_clock::time_point shown_;
    std::unique_ptr<TrainingDevice> device_;
    std::vector<std::unique_ptr<ImplementationOnRank>> implementations_;
};

}  // namespace

BenchRows train_on_ranks(const TrainingOptions& options, RankSession& session) {
    return TrainingJob(options, session).run();
}

}  // namespace bucketwise
