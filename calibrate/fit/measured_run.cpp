#include "calibrate/fit/measured_run.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// One line of the file, for messages.
struct Line {
    const std::string& file;
    std::size_t number = 0;  // from 1

    [[noreturn]] void fail(const std::string& pointer, const std::string& expected,
                           const std::string& got) const {
        throw InputError(fmt::format("{}:{}", file, number), pointer, expected, got);
    }

    void check_times(const std::string& pointer, const std::vector<double>& times) const {
        if (times.empty()) {
            fail(pointer, "samples", "none");
        }
        if (std::any_of(times.begin(), times.end(), [](double t) { return !(t > 0); })) {
            fail(pointer, "times above zero", "zero");
        }
    }

    void check_count(const std::string& pointer, std::size_t count, std::size_t expected) const {
        if (count != expected) {
            fail(pointer, fmt::format("{} values", expected), std::to_string(count));
        }
    }
};

std::string text_of(const Transport& t) {
    return fmt::format("{} {} ({}) on {} ranks{}{}", t.backend, t.algorithm, t.implementation,
                       t.ranks, t.shared_gpu ? " of one GPU" : "",
                       t.ctas ? fmt::format(", {} CTAs at most", *t.ctas) : "");
}

class Collector {
  public:
    explicit Collector(const std::string& file) { run_.file = file; }

    void add(const Measurement& record, const Line& line) {
        std::visit([&](const auto& r) { add_record(r, line); }, record);
        ++count_;
    }

    MeasuredRun finish(bool torn) {
        if (count_ == 0) {
            throw InputError(run_.file, "", "measurement records", "none");
        }
        if (torn) {
            run_.warnings.push_back(
                run_.file +
                ": the last line has no end, as after a run that was cut off; its sample is lost");
        }
        return std::move(run_);
    }

  private:
    void check_transport(const Transport& transport, const Line& line) {
        if (count_ == 0) {
            run_.transport = transport;
        } else if (transport != run_.transport) {
            line.fail("", "records of one run: " + text_of(run_.transport), text_of(transport));
        }
    }

    void add_record(const EnvironmentRecord& record, const Line& line) {
        if (run_.environment && record.scenario.empty()) {
            check_isolated(record.transport, line);
        } else {
            check_transport(record.transport, line);
        }
        if (run_.environment) {
            check_same(*run_.environment, record, line);
        } else if (count_ > 0) {
            line.fail("/kind", "the environment on the first line", "one after other records");
        } else {
            run_.environment = record;
        }
    }

    // A resumption on another machine, or of another scenario, is another run.
    static void check_same(const EnvironmentRecord& a, const EnvironmentRecord& b,
                           const Line& line) {
        const auto values = [](const EnvironmentRecord& of) {
            return std::array{of.link_rate.empty() ? "null" : of.link_rate,
                              of.machine.cpu,
                              std::to_string(of.machine.cores),
                              std::to_string(of.hosts),
                              of.machine.scheduling,
                              of.libraries,
                              of.gpu};
        };
        constexpr std::array pointers{"/link_rate",  "/cpu",       "/cores", "/hosts",
                                      "/scheduling", "/libraries", "/gpu"};
        const auto first = values(a);
        const auto second = values(b);
        for (std::size_t i = 0; i < first.size(); ++i) {
            if (first.at(i) != second.at(i)) {
                line.fail(pointers.at(i), "records of one run: " + first.at(i), second.at(i));
            }
        }
        if (a.scenario != b.scenario) {
            line.fail("/scenario", "records of one run", "another scenario");
        }
    }

    // Records of one run have one transport. Two kinds differ in their number of ranks: the files
    // of `bucketwise bench allreduce` and its like, which replay no scenario, and the collectives
    // among some ranks of a sharded step.
    void check_isolated(const Transport& transport, const Line& line) {
        const bool is_bench = run_.environment && run_.environment->scenario.empty();
        if (!is_bench) {
            Transport of_all = transport;
            if (transport.ranks > 1 && run_.transport.ranks % transport.ranks == 0) {
                of_all.ranks = run_.transport.ranks;
            }
            check_transport(count_ == 0 ? transport : of_all, line);
            return;
        }
        if (run_.collectives.empty()) {
            run_.transport = transport;
        }
        Transport same_ranks = transport;
        same_ranks.ranks = run_.transport.ranks;
        if (same_ranks != run_.transport) {
            line.fail("", "collectives of one algorithm: " + text_of(run_.transport),
                      text_of(transport));
        }
    }

    void check_message(CollectiveKind kind, Bytes size, DType dtype, const Line& line) {
        if (size.count <= 0) {
            line.fail("/bytes", "a message of at least one byte", std::to_string(size.count));
        }
        // Summing costs differ; an all-gather sums nothing.
        if (kind == CollectiveKind::all_gather) {
            return;
        }
        const DType first = run_.dtype.value_or(dtype);
        if (dtype != first) {
            line.fail("/dtype", fmt::format("sums of one dtype, {}", name_of(first)),
                      std::string(name_of(dtype)));
        }
        run_.dtype = dtype;
    }

    void add_record(const CollectiveRecord& record, const Line& line) {
        check_isolated(record.transport, line);
        line.check_times("/samples_us", record.samples_us);
        check_message(record.kind, record.size, record.dtype, line);
        run_.collectives.push_back(record);
    }

    void add_record(const ComputeRecord& record, const Line& line) {
        if (count_ == 0 || record.ranks != run_.transport.ranks ||
            record.backend != run_.transport.backend) {
            line.fail("", count_ == 0 ? "the environment before it" : "records of one run",
                      fmt::format("{} on {} ranks", record.backend, record.ranks));
        }
        if (record.shared_gpu != run_.transport.shared_gpu) {
            line.fail("/shared_gpu",
                      fmt::format("records of one run: {}", run_.transport.shared_gpu),
                      fmt::format("{}", record.shared_gpu));
        }
        line.check_times("/samples_us", record.samples_us);
        if (record.rank >= record.ranks) {
            line.fail("/rank", fmt::format("a rank below {}", record.ranks),
                      std::to_string(record.rank));
        }
        if (run_.environment) {
            line.check_count("/forward_operations_us", record.forward_operations_us.size(),
                             run_.environment->forward_operations.size());
            line.check_count("/backward_operations_us", record.backward_operations_us.size(),
                             run_.environment->backward_operations.size());
            line.check_count("/ready_us", record.ready_us.size(),
                             run_.environment->gradients.size());
        }
        run_.computes.push_back(record);
    }

    void add_record(const ContentionRecord& record, const Line& line) {
        // Contention is measured with several numbers of thread blocks.
        Transport with_same_ctas = record.transport;
        with_same_ctas.ctas = run_.transport.ctas;
        check_transport(count_ == 0 ? record.transport : with_same_ctas, line);
        check_message(record.collective, record.size, record.dtype, line);
        line.check_times("/allreduce_alone_us", record.allreduce_alone_us);
        line.check_times("/allreduce_disturbed_us", record.allreduce_disturbed_us);
        line.check_count("/compute_disturbed_us", record.compute_disturbed_us.size(),
                         record.compute_alone_us.size());
        run_.contentions.push_back(record);
    }

    void add_record(const StepRecord& record, const Line& line) {
        check_transport(record.transport, line);
        line.check_times("/samples_us", record.samples_us);
        line.check_times("/free_communication_us", record.free_communication_us);
        line.check_count("/collective_end_us", record.collective_end_us.size(),
                         record.collective_begin_us.size());
        line.check_count("/collective_last_begin_us", record.collective_last_begin_us.size(),
                         record.collective_begin_us.size());
        if (record.by_rank.empty()) {
            line.fail("/by_rank", "an entry per rank", "none");
        }
        run_.steps.push_back(record);
    }

    MeasuredRun run_;
    std::size_t count_ = 0;
};

}  // namespace

MeasuredRun collect_run(const std::vector<Measurement>& records, bool torn,
                        const std::string& file) {
    Collector collector(file);
    for (std::size_t i = 0; i < records.size(); ++i) {
        collector.add(records[i], {file, i + 1});
    }
    return collector.finish(torn);
}

bool MeasuredRun::has(CollectiveKind kind) const {
    return std::ranges::count(collectives, kind, &CollectiveRecord::kind) > 0;
}

std::vector<LinkPoint> link_points(CollectiveKind kind, const std::vector<MeasuredRun>& runs) {
    using Rounds = std::vector<const std::vector<double>*>;
    std::map<std::pair<std::int64_t, Bytes>, Rounds> by_point;
    for (const MeasuredRun& run : runs) {
        for (const CollectiveRecord& record : run.collectives) {
            if (record.kind == kind) {
                by_point[{record.transport.ranks, record.size}].push_back(&record.samples_us);
            }
        }
    }
    std::vector<LinkPoint> points;
    for (const auto& [key, rounds] : by_point) {
        LinkPoint point{.ranks = key.first, .size = key.second, .kind = kind};
        std::vector<double> medians;
        for (const std::vector<double>* round : rounds) {
            point.samples_us.insert(point.samples_us.end(), round->begin(), round->end());
            medians.push_back(median(*round));
        }
        point.samples = std::ssize(point.samples_us);
        point.median_us = median(point.samples_us);
        point.standard_error_us =
            standard_error_of_median(medians.size() > 1 ? medians : point.samples_us);
        points.push_back(std::move(point));
    }
    return points;
}

}  // namespace bucketwise
