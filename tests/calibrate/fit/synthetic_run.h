// Measurement records of a machine whose every parameter is known: made by simulating it.
#pragma once

#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "hw/record/measurement.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/engine/engine.h"
#include "sim/link/collective.h"
#include "sim/predict/prediction.h"
#include "sim/program/step_programs.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// A small transformer on two ranks; half a second per step, and a link that the caps matter on.
inline const char* synthetic_document() {
    return R"({
      "name": "synthetic",
      "workload": {
        "model": { "family": "gpt2", "layers": 3, "hidden": 256, "feed_forward": 1024, "heads": 4,
                   "vocabulary": 1024, "context": 64 },
        "batch": 1, "sequence_length": 64,
        "device": { "name": "true device", "peak_tflop_per_s": { "float32": 0.01 },
                    "memory_bandwidth_gb_per_s": 8, "host_is_device": true } },
      "cluster": { "ranks": 2, "link": {
        "name": "true link", "algorithm": "ring",
        "segments": [ { "up_to_bytes": 50000, "latency_us": 60, "bandwidth_gb_per_s": 0.4 },
                      { "latency_us": 150, "bandwidth_gb_per_s": 0.2 } ],
        "interference": { "compute_slowdown": 1.25, "communication_slowdown": 1.1 },
        "copy_gb_per_s": 4 } },
      "sync": { "strategy": "ddp", "views": true },
      "step": { "optimizer": "sgd" } })";
}

// The same on two GPUs: launches that bind part of the step, and slowdowns by thread blocks.
inline const char* synthetic_gpu_document() {
    static const std::string text = [] {
        Json document = Json::parse(synthetic_document());
        document["name"] = "synthetic GPU";
        Json& device = document["workload"]["device"];
        device.erase("host_is_device");
        device["launch_us"] = 1000;
        device["graph_launch_us"] = 700;
        document["cluster"]["link"].update(Json::parse(R"({ "host_issue_us": 50, "ctas": 4,
            "interference": [
              { "ctas": 2, "compute_slowdown": 1.1, "communication_slowdown": 1.3 },
              { "ctas": 4, "compute_slowdown": 1.2, "communication_slowdown": 1.2 },
              { "ctas": 8, "compute_slowdown": 1.4, "communication_slowdown": 1.1 } ] })"));
        document["step"] = {{"optimizer_ms", 3}, {"sync_each_step", true}};
        return document.dump();
    }();
    return text.c_str();
}

inline Scenario synthetic_scenario(const std::string& text = synthetic_document()) {
    return parse_scenario(Json::parse(text), "synthetic.json",
                          [](const std::string& path) { return path; });
}

struct SyntheticNoise {
    double compute = 0;  // shares of each time, normal
    double all_reduce = 0;
    double step = 0;
    unsigned seed = 1;
};

class SyntheticMachine {
  public:
    SyntheticMachine(const Scenario& truth, const SyntheticNoise& noise)
        : truth_(truth), input_(step_input(truth)), noise_(noise), random_(noise.seed) {}

    // `document`: the scenario in the environment record.
    std::vector<Measurement> environment(const std::string& document) const {
        EnvironmentRecord record;
        record.transport = transport();
        record.version = "0";
        record.date = "2026-01-02T03:04:05Z";
        record.command = {"bucketwise", "measure", "synthetic.json"};
        record.machine.cpu = "synthetic CPU";
        record.machine.cores = 2;
        record.machine.kernel = "none";
        record.machine.scheduling = "default";
        record.libraries = "none";
        if (is_gpu()) {
            record.gpu = "synthetic GPU, 1 GiB";
        }
        record.scenario = document;
        for (const Gradient& gradient : input_.workload.gradients) {
            record.gradients.push_back(gradient.name);
        }
        for (const TimedOperation& operation : input_.workload.forward) {
            record.forward_operations.push_back(operation.name);
        }
        for (const TimedOperation& operation : input_.workload.backward) {
            record.backward_operations.push_back(operation.name);
        }
        return {record};
    }

    std::vector<Measurement> all_reduces(int rounds, std::int64_t ranks = 2) {
        return collectives(CollectiveKind::all_reduce, rounds, ranks);
    }

    std::vector<Measurement> collectives(CollectiveKind kind, int rounds, std::int64_t ranks = 2) {
        std::vector<Measurement> records;
        for (int round = 0; round < rounds; ++round) {
            for (int i = 0; i < 15; ++i) {
                CollectiveRecord record;
                record.kind = kind;
                record.transport = transport();
                record.transport.ranks = ranks;
                record.size = {std::int64_t{1024} << i};
                record.round = round;
                const double us =
                    to_us(collective_time(kind, record.size, {ranks, ranks}, input_.link));
                for (int sample = 0; sample < 5; ++sample) {
                    record.samples_us.push_back(noisy(us, noise_.all_reduce));
                    if (is_gpu()) {
                        record.issue_us.push_back(to_us(input_.link.host_issue));
                    }
                }
                records.push_back(record);
            }
        }
        return records;
    }

    // Both ranks alike, but for noise.
    std::vector<Measurement> computes(int rounds) {
        std::vector<Measurement> records;
        const Evaluation with_copies = Evaluator(input_, truth_.sync).evaluate(std::nullopt);
        for (int round = 0; round < rounds; ++round) {
            for (std::int64_t rank = 0; rank < 2; ++rank) {
                ComputeRecord record;
                record.backend = transport().backend;
                record.ranks = 2;
                record.rank = rank;
                record.round = round;
                record.optimizer_us = to_us(input_.step.optimizer);
                add_pass(input_.workload.forward, record.forward_operations_us, record.forward_us);
                add_pass(input_.workload.backward, record.backward_operations_us,
                         record.backward_us);
                record.samples_us = {record.forward_us + record.backward_us + record.optimizer_us};
                record.copying_step_us = record.samples_us[0] +
                                         to_us(with_copies.times.step() - with_copies.exposed) -
                                         compute_us();
                record.ready_us.assign(input_.workload.gradients.size(), record.backward_us);
                if (is_gpu()) {
                    measure_on_gpu(with_copies, record);
                }
                records.emplace_back(record);
            }
        }
        return records;
    }

    std::vector<Measurement> contentions(int rounds,
                                         CollectiveKind kind = CollectiveKind::all_reduce) {
        std::set<std::optional<std::int64_t>> numbers;
        for (const InterferenceSegment& segment : input_.link.interference) {
            numbers.insert(segment.ctas);
        }
        std::vector<Measurement> records;
        for (int round = 0; round < rounds; ++round) {
            for (const std::optional<std::int64_t> ctas : numbers) {
                for (const std::int64_t bytes : {1 << 16, 1 << 20, 1 << 23}) {
                    records.emplace_back(contention(kind, {bytes}, ctas, round));
                }
            }
        }
        return records;
    }

    std::vector<Measurement> steps(int rounds, const std::vector<Bytes>& caps) {
        std::vector<Measurement> records;
        for (int round = 0; round < rounds; ++round) {
            records.emplace_back(step(std::nullopt, round));
            for (const Bytes cap : caps) {
                records.emplace_back(step(cap, round));
            }
        }
        return records;
    }

    // A host launches work on a device.
    [[nodiscard]] bool is_gpu() const {
        return !input_.workload.host_is_device && input_.workload.copy_launch > Duration{0};
    }

    [[nodiscard]] Transport transport() const {
        return {.backend = is_gpu() ? "nccl" : "gloo",
                .algorithm = "ring",
                .implementation = "library",
                .ranks = 2,
                .ctas = input_.link.ctas};
    }

  private:
    double noisy(double value, double share) {
        return value * std::max(1 + share * std::normal_distribution<double>()(random_), 0.2);
    }

    StepTimes compute_times() const {
        SyncRequest none;
        none.strategy = Strategy::none;
        return simulate_times(build_program(input_, settings_for(none), {}));
    }

    double compute_us() const { return to_us(compute_times().step()); }

    // Launching is part of a GPU's step, and no part of its operations.
    void measure_on_gpu(const Evaluation& with_copies, ComputeRecord& record) const {
        const StepTimes times = compute_times();
        record.forward_us = to_us(times.forward);
        record.backward_us = to_us(times.backward);
        record.samples_us = {to_us(times.step())};
        record.copying_step_us = to_us(with_copies.times.step() - with_copies.exposed);
        const double launch_us = to_us(input_.workload.copy_launch);
        record.forward_launches_us.assign(record.forward_operations_us.size(), launch_us);
        record.backward_launches_us.assign(record.backward_operations_us.size(), launch_us);
        // With views each gradient is copied once, into its bucket.
        record.copies_us =
            to_us(transfer_time(input_.workload.gradient_bytes(), *input_.copy_bandwidth));
        record.graph_launch_us =
            to_us(std::get<ModelWorkload>(truth_.workload).device->graph_launch);
    }

    // Matrix products take their share of 1000 us, and slow half as much as all together.
    ContentionRecord contention(CollectiveKind kind, Bytes size, std::optional<std::int64_t> ctas,
                                int round) {
        LinkParameters link = input_.link;
        link.ctas = ctas;
        const Interference slowdown = interference_for(kind, link, size);
        ContentionRecord record;
        record.collective = kind;
        record.transport = transport();
        record.transport.ctas = ctas;
        record.size = size;
        record.round = round;
        const double us = to_us(collective_time(kind, size, {2, 2}, input_.link));
        record.allreduce_alone_us = {us, us};
        record.allreduce_disturbed_us = {
            us * static_cast<double>(slowdown.communication_slowdown_ppm) * 1e-6};
        record.compute_alone_us = {1000, 1000};
        const double disturbed_us =
            noisy(static_cast<double>(slowdown.compute_slowdown_ppm) * 1e-3, noise_.compute);
        record.compute_disturbed_us.assign(2, disturbed_us);
        if (is_gpu()) {
            const double products_us = 1000 * input_.workload.mix.product_share.value();
            record.products_alone_us = {products_us, products_us};
            record.products_disturbed_us.assign(2, products_us * (1 + disturbed_us / 1000) / 2);
        }
        return record;
    }

    void add_pass(const std::vector<TimedOperation>& pass, std::vector<double>& times,
                  double& sum) {
        for (const TimedOperation& operation : pass) {
            times.push_back(noisy(to_us(operation.device), noise_.compute));
            sum += times.back();
        }
    }

    StepRecord step(std::optional<Bytes> cap, int round) {
        Evaluator evaluator(input_, truth_.sync);
        const Evaluation evaluation = evaluator.evaluate(cap);
        const Program program = evaluator.program(cap);
        const double factor = noisy(1, noise_.step);
        StepRecord record;
        record.transport = transport();
        record.strategy = name_of(truth_.sync.strategy);
        record.cap = evaluation.cap.size();
        record.is_default = !cap;
        record.bucket_bytes = evaluation.bucket_bytes;
        record.round = round;
        record.samples_us = {factor * to_us(evaluation.times.step())};
        record.free_communication_us = {factor *
                                        to_us(evaluation.times.step() - evaluation.exposed)};
        record.exposed_communication_us = factor * to_us(evaluation.exposed);
        double computing_us = 0;
        record.collective_begin_us.resize(program.collectives.size());
        record.collective_end_us.resize(program.collectives.size());
        for (const Span& span : simulate({&program, 1}, Record::timeline).timeline.spans) {
            if (span.track == Track::communication) {
                const auto subject = static_cast<std::size_t>(span.subject);
                record.collective_begin_us[subject] = factor * to_us(span.start);
                record.collective_end_us[subject] = factor * to_us(span.end);
            } else if (span.track == Track::compute) {
                computing_us += factor * to_us(span.end - span.start);
            }
        }
        record.collective_last_begin_us = record.collective_begin_us;
        const RankStep rank{.step_us = record.samples_us[0],
                            .forward_us = factor * to_us(evaluation.times.forward),
                            .backward_us = factor * to_us(evaluation.times.backward),
                            .optimizer_us = factor * to_us(evaluation.times.optimizer),
                            .waiting_us = record.samples_us[0] - computing_us,
                            .peak_memory_bytes = 1};
        record.by_rank = {rank, rank};
        return record;
    }

    Scenario truth_;
    StepInput input_;
    SyntheticNoise noise_;
    std::mt19937 random_;
};

inline std::vector<Measurement> concatenated(const std::vector<std::vector<Measurement>>& parts) {
    std::vector<Measurement> all;
    for (const std::vector<Measurement>& part : parts) {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

inline std::vector<Bytes> synthetic_caps() {
    std::vector<Bytes> caps;
    for (const double mib : {0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0}) {
        caps.push_back({static_cast<std::int64_t>(mib * static_cast<double>(bytes_per_mib))});
    }
    return caps;
}

// The rounds of each kind of record in one file, after an environment with the scenario.
struct SyntheticRounds {
    int all_reduces = 0;
    int computes = 0;
    int contentions = 0;
    int steps = 0;
    std::vector<Bytes> caps = synthetic_caps();  // of the steps
};

inline std::vector<Measurement> synthetic_records(SyntheticMachine& machine,
                                                  const std::string& document,
                                                  const SyntheticRounds& rounds) {
    return concatenated({machine.environment(Json::parse(document).dump()),
                         machine.all_reduces(rounds.all_reduces), machine.computes(rounds.computes),
                         machine.contentions(rounds.contentions),
                         machine.steps(rounds.steps, rounds.caps)});
}

inline MeasuredRun synthetic_run_of(const std::string& document, const SyntheticRounds& rounds,
                                    const SyntheticNoise& noise = {}) {
    SyntheticMachine machine(synthetic_scenario(document), noise);
    return collect_run(synthetic_records(machine, document, rounds), false, "synthetic.jsonl");
}

// Everything that can be measured of the machine.
inline MeasuredRun synthetic_run(const SyntheticNoise& noise, int rounds = 6) {
    return synthetic_run_of(synthetic_document(), {rounds, rounds, rounds, rounds}, noise);
}

}  // namespace bucketwise
