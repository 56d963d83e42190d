#include "cli/bench_allreduce_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "calibrate/statistics.h"
#include "cli/size.h"
#include "sim/dtype.h"
#include "sim/units.h"

namespace bucketwise {
namespace {

// All rounds of one size, algorithm and number of ranks.
struct Row {
    Transport transport;
    std::string algorithm;  // as --algorithms names it
    Bytes size;
    DType dtype = DType::float32;
    std::vector<double> samples_us;
    double median_us = 0;
    double largest_difference = 0;
    std::int64_t peak_memory_bytes = 0;
};

std::string algorithm_of(const Transport& transport) {
    return transport.implementation == "library" ? transport.implementation : transport.algorithm;
}

// Worlds in the order they ran; within each, by size.
std::vector<Row> rows_of(const std::vector<Measurement>& records) {
    std::vector<Transport> worlds;
    std::map<std::pair<std::size_t, Bytes>, Row> rows;
    for (const Measurement& measurement : records) {
        const auto* record = std::get_if<AllReduceRecord>(&measurement);
        if (record == nullptr) {
            continue;
        }
        const auto world = std::find(worlds.begin(), worlds.end(), record->transport);
        const auto number = static_cast<std::size_t>(world - worlds.begin());
        if (world == worlds.end()) {
            worlds.push_back(record->transport);
        }
        Row& row = rows[{number, record->size}];
        row.transport = record->transport;
        row.algorithm = algorithm_of(record->transport);
        row.size = record->size;
        row.dtype = record->dtype;
        row.samples_us.insert(row.samples_us.end(), record->samples_us.begin(),
                              record->samples_us.end());
        row.largest_difference = std::max(row.largest_difference, record->largest_difference);
        row.peak_memory_bytes = std::max(row.peak_memory_bytes, record->peak_memory_bytes);
    }
    std::vector<Row> list;
    for (auto& [key, row] : rows) {
        row.median_us = median(row.samples_us);
        list.push_back(std::move(row));
    }
    return list;
}

const EnvironmentRecord* environment_of(const std::vector<Measurement>& records) {
    for (const Measurement& record : records) {
        if (const auto* environment = std::get_if<EnvironmentRecord>(&record)) {
            return environment;
        }
    }
    return nullptr;
}

double algorithm_gb_per_s(const Row& row) {
    return row.median_us > 0 ? static_cast<double>(row.size.count) / row.median_us / 1e3 : 0.0;
}

// 2(p-1)/p of the message crosses each rank's link in a ring and in a direct all-reduce, as
// nccl-tests counts its bus bandwidth.
double bus_gb_per_s(const Row& row) {
    const auto ranks = static_cast<double>(row.transport.ranks);
    return 2 * (ranks - 1) / ranks * algorithm_gb_per_s(row);
}

// --- text ----------------------------------------------------------------------------------------

std::string versus_library(const Row& row, const std::vector<Row>& rows) {
    for (const Row& other : rows) {
        if (other.algorithm == "library" && other.size == row.size &&
            other.transport.ranks == row.transport.ranks && other.median_us > 0) {
            return fmt::format("{:.2f}", row.median_us / other.median_us);
        }
    }
    return "-";
}

// A single rank moves nothing.
std::string bandwidth_text(const Row& row, double gb_per_s) {
    return row.transport.ranks == 1 ? "-" : fmt::format("{:.3f}", gb_per_s);
}

std::string text_row(const Row& row, const std::vector<Row>& rows) {
    return fmt::format(
        "  {:>10}  {:<9}  {:>7}  {:>10.1f}  {:>10.1f}  {:>8}  {:>8}  {:>12}  {:>9.1f}  {:>10.2g}\n",
        message_text(row.size), row.algorithm, row.samples_us.size(), row.median_us,
        quantile(row.samples_us, 0.9), bandwidth_text(row, algorithm_gb_per_s(row)),
        bandwidth_text(row, bus_gb_per_s(row)), versus_library(row, rows),
        to_mib({row.peak_memory_bytes}), row.largest_difference);
}

std::string text_heading(std::int64_t ranks) {
    return fmt::format(
        "\n{} {}\n  {:>10}  {:<9}  {:>7}  {:>10}  {:>10}  {:>8}  {:>8}  {:>12}  {:>9}  {:>10}\n",
        ranks, ranks == 1 ? "rank" : "ranks", "message", "algorithm", "samples", "median us",
        "p90 us", "alg GB/s", "bus GB/s", "time/library", "peak MiB", "difference");
}

// By ranks, then by size, so that algorithms stand one below the other.
std::vector<Row> by_size(std::vector<Row> rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
        return std::pair(a.transport.ranks, a.size) < std::pair(b.transport.ranks, b.size);
    });
    return rows;
}

std::string text_report(const std::vector<Measurement>& records) {
    const std::vector<Row> rows = by_size(rows_of(records));
    std::string text;
    if (const EnvironmentRecord* e = environment_of(records); e != nullptr && !rows.empty()) {
        text = fmt::format(
            "{} all-reduce over {}{}; {}\n"
            "times of the slowest rank; the rank with most memory; the element furthest from the "
            "exact mean\n",
            name_of(rows.front().dtype), e->libraries,
            e->link_rate.empty() ? "" : " at " + e->link_rate, hardware_of(*e));
    }
    std::int64_t ranks = 0;
    for (const Row& row : rows) {
        if (row.transport.ranks != ranks) {
            ranks = row.transport.ranks;
            text += text_heading(ranks);
        }
        text += text_row(row, rows);
    }
    return text;
}

// --- CSV -----------------------------------------------------------------------------------------

// Of the samples, as numpy's std(ddof=1); 0 of a single one.
double standard_deviation(const std::vector<double>& samples) {
    if (samples.size() < 2) {
        return 0;
    }
    const auto count = static_cast<double>(samples.size());
    const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
    double squares = 0;
    for (const double sample : samples) {
        squares += (sample - mean) * (sample - mean);
    }
    return std::sqrt(squares / (count - 1));
}

std::string csv_report(const std::vector<Measurement>& records) {
    std::string text =
        "world_size,tensor_elements,bytes,dtype,algorithm,time_s,std_s,min_s,max_s,"
        "max_memory_kib,difference,backend\n";
    for (const Row& row : by_size(rows_of(records))) {
        const auto [least, most] =
            std::minmax_element(row.samples_us.begin(), row.samples_us.end());
        text += fmt::format("{},{},{},{},{},{:.9g},{:.9g},{:.9g},{:.9g},{},{:.9g},{}\n",
                            row.transport.ranks, row.size.count / element_size(row.dtype).count,
                            row.size.count, name_of(row.dtype), row.algorithm, row.median_us / 1e6,
                            standard_deviation(row.samples_us) / 1e6, *least / 1e6, *most / 1e6,
                            row.peak_memory_bytes / 1024, row.largest_difference,
                            row.transport.backend);
    }
    return text;
}

// --- nccl-tests ----------------------------------------------------------------------------------

std::string_view nccl_type(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "float";
        case DType::float16:
            return "half";
        case DType::bfloat16:
            return "bfloat16";
        case DType::float64:
            return "double";
    }
    return {};
}

// nccl-tests: seven columns, with fewer decimals the larger the number is.
std::string nccl_time(double us) {
    return us >= 10'000 ? fmt::format("{:7.0f}", us)
           : us >= 100  ? fmt::format("{:7.1f}", us)
                        : fmt::format("{:7.2f}", us);
}

// We sum in place only. nccl-tests always measures both ways, so it has no sign for a time that
// is missing (its N/A is one of #wrong alone), and most of who reads its tables read the left half
// as numbers. So both halves show the one measurement, and the block says so above the table.
std::string nccl_row(const Row& row) {
    const std::string half = fmt::format("  {}  {:6.2f}  {:6.2f}  {:>5}", nccl_time(row.median_us),
                                         algorithm_gb_per_s(row), bus_gb_per_s(row), 0);
    return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", row.size.count,
                       row.size.count / element_size(row.dtype).count, nccl_type(row.dtype), "sum",
                       -1, half, half);
}

// "step: 2(factor)" if each size is so many times the one before; nccl-tests has no lists.
std::string nccl_step(const std::vector<Row>& block) {
    if (block.size() < 2) {
        return "0(list)";
    }
    const std::int64_t factor = block[1].size.count / block[0].size.count;
    for (std::size_t i = 1; i < block.size(); ++i) {
        if (block[i].size.count != factor * block[i - 1].size.count) {
            return "0(list)";
        }
    }
    return fmt::format("{}(factor)", factor);
}

std::string nccl_devices(const EnvironmentRecord& environment, std::int64_t ranks) {
    std::string text = "# Using devices\n";
    const bool on_gpu = !environment.gpu.empty();
    const bool shared = environment.transport.shared_gpu;
    const std::int64_t per_host = (ranks + environment.hosts - 1) / environment.hosts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        // Process ids and bus ids, which a CPU has none of, are not in the records.
        text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} {}\n", rank, 0,
                            fmt::format("host{:02}", rank / per_host), shared ? 0 : rank % per_host,
                            on_gpu ? "[gpu] " + environment.gpu.substr(0, environment.gpu.find(','))
                                   : "[cpu] " + environment.machine.cpu);
    }
    return text + "#\n";
}

std::string nccl_heading() {
    constexpr std::string_view form =
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} "
        "{:>6}\n";
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {}\n", "", "", "", "", "",
                       "         out-of-place                       in-place          ") +
           fmt::format(form, "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                       "#wrong", "time", "algbw", "busbw", "#wrong") +
           fmt::format(form, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "",
                       "(us)", "(GB/s)", "(GB/s)", "");
}

std::string nccl_block(const EnvironmentRecord& environment, const std::vector<Row>& block) {
    const Row& first = block.front();
    std::string text = fmt::format(
        "# bucketwise {}: {} {} all-reduce over {}, {} ranks; medians of the slowest rank, summed "
        "in place; both halves of a row show that one measurement\n"
        "# Collective test starting: all_reduce_perf\n"
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: 1 iters: {} agg iters: "
        "1 validation: 1 graph: 0\n#\n",
        environment.version, first.transport.implementation, first.transport.algorithm,
        environment.libraries, first.transport.ranks, first.size.count, block.back().size.count,
        nccl_step(block), first.samples_us.size());
    text += nccl_devices(environment, first.transport.ranks) + nccl_heading();
    double sum = 0;
    for (const Row& row : block) {
        text += nccl_row(row);
        sum += bus_gb_per_s(row);
    }
    // A wrong sum would have failed the run.
    return text + fmt::format(
                      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {:.6g} \n#\n"
                      "# Collective test concluded: all_reduce_perf\n#\n",
                      sum / static_cast<double>(block.size()));
}

std::string nccl_tests_report(const std::vector<Measurement>& records) {
    const EnvironmentRecord* environment = environment_of(records);
    const std::vector<Row> rows = rows_of(records);
    std::string text;
    for (std::size_t begin = 0; environment != nullptr && begin < rows.size();) {
        std::vector<Row> block;
        for (; begin < rows.size() &&
               (block.empty() || rows[begin].transport == block.front().transport);
             ++begin) {
            block.push_back(rows[begin]);
        }
        text += nccl_block(*environment, block);
    }
    return text;
}

}  // namespace

std::string_view name_of(BenchFormat format) {
    switch (format) {
        case BenchFormat::text:
            return "text";
        case BenchFormat::csv:
            return "csv";
        case BenchFormat::nccl_tests:
            return "nccl-tests";
    }
    return {};
}

std::string message_text(Bytes size) {
    if (size.count % 1000 != 0) {
        return text_of(size);
    }
    std::int64_t number = size.count;
    std::string_view unit;
    for (const std::string_view larger : {"kB", "MB", "GB"}) {
        if (number % 1000 == 0) {
            number /= 1000;
            unit = larger;
        }
    }
    return fmt::format("{}{}", number, unit);
}

std::string bench_allreduce_report(const std::vector<Measurement>& records, BenchFormat format) {
    switch (format) {
        case BenchFormat::text:
            return text_report(records);
        case BenchFormat::csv:
            return csv_report(records);
        case BenchFormat::nccl_tests:
            return nccl_tests_report(records);
    }
    return {};
}

}  // namespace bucketwise
