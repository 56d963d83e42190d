// Steps of real measurements, resampled into runs of a known job, and damage done to them.
//
// tests/data/validation has 18 files of steps of real ranks, each of 70 or 84 steps that followed
// one another: every cap once a round. A moment is a step, its computing and its collectives over
// the medians of its cap. Moments are drawn in blocks of five that followed one another, so that
// what is serial in them stays, and are laid over one job: the default cap's step, buckets and
// collectives of that file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "calibrate/gate/causes.h"
#include "calibrate/gate/gate_run.h"
#include "sim/base/json_input.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "tests/catch.h"

namespace bucketwise {

inline const std::filesystem::path validation_results = BUCKETWISE_TEST_DATA_DIR "/validation";

inline MeasuredRun read_validation(const std::filesystem::path& folder) {
    const std::string file = (folder / "measurements.jsonl").string();
    std::ifstream lines(file);
    std::vector<Measurement> records;
    for (std::string line; std::getline(lines, line);) {
        records.push_back(read_measurement(parse_json(line, file), file, std::ssize(records) + 1));
    }
    return collect_run(records, false, file);
}

// The parts of a step at one moment, over the medians of its cap.
struct Moment {
    double step = 1;
    double computing = 1;
    double collectives = 1;
};

struct Job {
    std::string name;
    double noise = 0;  // standard deviation of a step within its cap, as a share
    std::vector<Moment> moments = {};
    // The default cap's medians, in ms.
    double step = 0;
    double computing = 0;
    std::vector<Bytes> bytes = {};
    std::vector<double> collectives = {};
    std::vector<double> ready = {};
};

inline double collectives_of(const StepRecord& step, std::size_t bucket) {
    const std::size_t place = step.collective_begin_us.size() - step.bucket_bytes.size() + bucket;
    return step.collective_end_us[place] - step.collective_last_begin_us[place];
}

inline double all_collectives_of(const StepRecord& step) {
    double sum = 0;
    for (std::size_t b = 0; b < step.bucket_bytes.size(); ++b) {
        sum += collectives_of(step, b);
    }
    return sum;
}

inline Job job_of(const std::filesystem::path& folder) {
    const MeasuredRun run = read_validation(folder);
    using Key = std::pair<std::int64_t, bool>;
    const auto key = [](const StepRecord& step) {
        return Key{step.cap ? step.cap->count : 0, step.is_default};
    };
    std::map<Key, std::vector<const StepRecord*>> by_cap;
    for (const StepRecord& step : run.steps) {
        by_cap[key(step)].push_back(&step);
    }
    Job job{.name = folder.filename().string()};
    for (const StepRecord& step : run.steps) {
        const auto over_median = [&](auto value) {
            return value(&step) / median_of(by_cap[key(step)], value);
        };
        job.moments.push_back(
            {over_median([](const StepRecord* one) { return one->samples_us.front(); }),
             over_median([](const StepRecord* one) { return one->free_communication_us.front(); }),
             over_median([](const StepRecord* one) { return all_collectives_of(*one); })});
    }
    double squares = 0;
    double degrees = 0;
    for (const auto& [cap, records] : by_cap) {
        const std::vector<double> logs = transformed(
            records, [](const auto* step) { return std::log(step->samples_us.front()); });
        degrees += static_cast<double>(logs.size()) - 1;
        squares += std::pow(standard_deviation(logs), 2) * (static_cast<double>(logs.size()) - 1);
    }
    job.noise = std::sqrt(squares / degrees);
    for (const auto& [cap, records] : by_cap) {
        if (!cap.second) {
            continue;
        }
        job.step =
            median_of(records, [](const auto* one) { return one->samples_us.front(); }) / 1e3;
        job.computing =
            median_of(records, [](const auto* one) { return one->free_communication_us.front(); }) /
            1e3;
        job.bytes = records.front()->bucket_bytes;
        for (std::size_t b = 0; b < job.bytes.size(); ++b) {
            job.collectives.push_back(
                median_of(records, [&](const auto* one) { return collectives_of(*one, b); }) / 1e3);
            // Backward is two thirds of computing, and buckets become ready evenly in it.
            job.ready.push_back(job.computing * 2 / 3 * static_cast<double>(b + 1) /
                                static_cast<double>(job.bytes.size()));
        }
    }
    return job;
}

inline std::vector<Job> validation_jobs() {
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(validation_results)) {
        folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    return transformed(folders, job_of);
}

// The same job where moments vary so much instead.
inline Job with_noise(Job job, double noise) {
    const double scale = noise / job.noise;
    for (Moment& moment : job.moments) {
        for (double Moment::*part : {&Moment::step, &Moment::computing, &Moment::collectives}) {
            moment.*part = std::pow(moment.*part, scale);
        }
    }
    job.noise = noise;
    return job;
}

// So many moments in a row, then others.
inline std::vector<Moment> drawn(const Job& job, std::size_t count, std::mt19937_64& bits) {
    constexpr std::size_t block = 5;
    std::vector<Moment> moments;
    while (moments.size() < count) {
        const std::size_t begin = bits() % (job.moments.size() - block + 1);
        for (std::size_t i = 0; i < block && moments.size() < count; ++i) {
            moments.push_back(job.moments[begin + i]);
        }
    }
    return moments;
}

// The damage done to a job.
struct Planted {
    std::vector<double> collectives;  // by bucket
    std::vector<double> ready;
    double copying = 0;
    double exposed = 0;  // more than it was
    std::size_t late_bucket = 0;
};

inline double last_end(const std::vector<double>& ready, const std::vector<double>& collectives) {
    double end = 0;
    for (std::size_t b = 0; b < ready.size(); ++b) {
        end = std::max(end, ready[b]) + collectives[b];
    }
    return end;
}

inline Planted nothing_planted(const Job& job) {
    return {.collectives = job.collectives, .ready = job.ready};
}

// The least damage that makes the last collective end this much later, found by halving.
template <typename Make>
Planted ending_later(const Job& job, double later_ms, const Make& make) {
    const double wanted = last_end(job.ready, job.collectives) + later_ms;
    double low = 0;
    double high = 10 * job.step;
    for (int i = 0; i < 60; ++i) {
        const double middle = (low + high) / 2;
        const Planted planted = make(middle);
        (last_end(planted.ready, planted.collectives) < wanted ? low : high) = middle;
    }
    Planted planted = make(high);
    planted.exposed = later_ms;
    return planted;
}

inline Planted plant(const Job& job, CauseKind kind, double share, std::mt19937_64& bits) {
    const double longer = share * job.step;
    Planted planted = nothing_planted(job);
    if (kind == CauseKind::slower_link) {
        return ending_later(job, longer, [&](double size) {
            Planted slower = nothing_planted(job);
            for (double& collective : slower.collectives) {
                collective *= 1 + size / job.step;
            }
            return slower;
        });
    }
    const std::size_t bucket = bits() % job.bytes.size();
    if (kind == CauseKind::late_gradient) {
        return ending_later(job, longer, [&](double size) {
            Planted late = nothing_planted(job);
            late.ready[bucket] += size;
            late.late_bucket = bucket;
            return late;
        });
    }
    // Copies into a bucket, for which it and all after it are ready later.
    planted.copying = longer;
    for (std::size_t b = bucket; b < planted.ready.size(); ++b) {
        planted.ready[b] += longer;
    }
    return planted;
}

// A gate's view of it.
inline GateCase seen(const Job& job, const Planted& planted, const std::vector<Moment>& moments) {
    GateRun run{.file = job.name};
    for (std::size_t b = 0; b < job.bytes.size(); ++b) {
        run.buckets.push_back({.bytes = job.bytes[b]});
        run.gradients.push_back(
            {.name = "gradient " + std::to_string(b), .ready_ms = planted.ready[b]});
    }
    constexpr double copies = 0.01;  // of computing, before more is planted
    for (const Moment& moment : moments) {
        const double computing = job.computing * moment.computing;
        const double step = job.step * moment.step + planted.exposed + planted.copying;
        const double copying = copies * computing + planted.copying;
        run.part(StepPart::step).push_back(step);
        run.part(StepPart::computing).push_back((1 - copies) * computing);
        run.part(StepPart::copying).push_back(copying);
        run.part(StepPart::exposed).push_back(std::max(step - computing - planted.copying, 0.0));
        for (std::size_t b = 0; b < job.bytes.size(); ++b) {
            run.buckets[b].ready_ms.push_back(planted.ready[b] * moment.computing);
            run.buckets[b].collective_ms.push_back(planted.collectives[b] * moment.collectives);
        }
    }
    return {.name = job.name, .source = GateSource::measurement, .runs = {run}};
}

}  // namespace bucketwise
