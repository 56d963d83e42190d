// bucketwise bench copies: what packing gradients into a bucket and unpacking them costs, beside a
// plain copy of as many bytes.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/compute/copy_bench.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view copies_explanation = R"(
examples:
  bucketwise bench copies
  bucketwise bench copies --backend nccl --bytes 64MiB,256MiB --tensor-elements 1024,16384,1048576
  bucketwise bench copies --backend nccl --dtype float32 --bucket-dtype bfloat16 --format csv

A bucket holds equal gradients. GB/s counts what is read and what is written, as a device's copy bandwidth does; the
share is that of the plain copy measured in the same rounds. Half of the plain copy's GB/s is a link file's or device's
copy_gb_per_s, which counts payload.
)";

po::options_description copies_options() {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"backend", "gloo: on one thread of the CPU; nccl: on the first GPU", "gloo"},
         {"bytes", "sizes of the bucket", "64MiB"},
         {"tensor-elements", "elements of each gradient", "1024,16384,262144,4194304"},
         {"dtype", "of the gradients", "float32"},
         {"bucket-dtype", "of the bucket, as a compression hook has it; default: the gradients'"},
         {"rounds", "how often to measure everything", "20"},
         {"format", "text, csv or json", "text"},
         {"help,h", "show this", no_value}});
    return options;
}

struct Row {
    CopyCase copy_case;
    CopyTimes times;
    double median_us = 0;
    double gb_per_s = 0;
    double share = 0;  // of the plain copy's

    [[nodiscard]] Bytes bucket() const {
        return copy_case.tensors * copy_case.numel * element_size(copy_case.place_dtype);
    }
};

std::vector<Row> rows_of(const CopyCase& copy_case, const std::vector<CopyTimes>& ways) {
    std::vector<Row> rows;
    for (const CopyTimes& times : ways) {
        Row row{copy_case, times, median_of(times.samples, to_us)};
        row.gb_per_s = static_cast<double>(times.bytes_moved) / row.median_us / 1e3;
        row.share = rows.empty() ? 1 : row.gb_per_s / rows.front().gb_per_s;
        rows.push_back(row);
    }
    return rows;
}

std::string text_report(const std::vector<Row>& rows, const std::string& hardware) {
    std::string text =
        fmt::format("{}\n{:>10} {:>9} {:>10}  {:<10} {:>12} {:>9} {:>13}\n", hardware, "bucket",
                    "tensors", "elements", "way", "median us", "GB/s", "of plain copy");
    for (const Row& row : rows) {
        const CopyCase& c = row.copy_case;
        text += fmt::format("{:>10} {:>9} {:>10}  {:<10} {:>12.1f} {:>9.1f} {:>11.1f} %\n",
                            text_of(row.bucket()), c.tensors, c.numel, name_of(row.times.way),
                            row.median_us, row.gb_per_s, 100 * row.share);
    }
    return text;
}

std::string csv_report(const std::vector<Row>& rows) {
    std::string text =
        "bucket_bytes,tensors,tensor_elements,dtype,bucket_dtype,way,median_us,gb_per_s,share\n";
    for (const Row& row : rows) {
        const CopyCase& c = row.copy_case;
        text += fmt::format("{},{},{},{},{},{},{:.6g},{:.6g},{:.6g}\n", row.bucket().count,
                            c.tensors, c.numel, name_of(c.tensor_dtype), name_of(c.place_dtype),
                            name_of(row.times.way), row.median_us, row.gb_per_s, row.share);
    }
    return text;
}

std::string json_report(const std::vector<Row>& rows, const std::string& hardware,
                        const std::string& libraries) {
    Json list = Json::array();
    for (const Row& row : rows) {
        const CopyCase& c = row.copy_case;
        list.push_back({{"bucket_bytes", row.bucket().count},
                        {"tensors", c.tensors},
                        {"tensor_elements", c.numel},
                        {"dtype", name_of(c.tensor_dtype)},
                        {"bucket_dtype", name_of(c.place_dtype)},
                        {"way", name_of(row.times.way)},
                        {"moved_bytes", row.times.bytes_moved},
                        {"samples_us", transformed(row.times.samples, to_us)},
                        {"gb_per_s", row.gb_per_s},
                        {"share_of_plain_copy", row.share}});
    }
    return json_text(
        {{"hardware", hardware}, {"libraries", libraries}, {"date", utc_now()}, {"copies", list}});
}

std::vector<CopyCase> requested_cases(const po::variables_map& values) {
    CopyCase copy_case;
    copy_case.tensor_dtype = choice_value(values, "dtype", every<DType>);
    copy_case.place_dtype = values.count("bucket-dtype") == 0
                                ? copy_case.tensor_dtype
                                : choice_value(values, "bucket-dtype", every<DType>);
    constexpr Bytes most{std::int64_t{4} << 30U};
    constexpr std::int64_t most_elements = std::int64_t{1} << 30U;
    std::vector<CopyCase> cases;
    for (const Bytes size : parse_sizes(text_value(values, "bytes"), "--bytes")) {
        if (size > most) {
            throw InputError("--bytes", "", "at most 4 GiB", text_of(size));
        }
        for (const std::int64_t elements :
             whole_numbers(values, "tensor-elements", {1, most_elements})) {
            copy_case.numel = elements;
            copy_case.tensors =
                size.count / (copy_case.numel * element_size(copy_case.place_dtype).count);
            if (copy_case.tensors == 0) {
                throw InputError("--tensor-elements", "",
                                 fmt::format("gradients that fit into {}", text_of(size)),
                                 fmt::format("{}", elements));
            }
            cases.push_back(copy_case);
        }
    }
    return cases;
}

}  // namespace

CommandHelp bench_copies_help() {
    return {.usage = {"bucketwise bench copies [OPTIONS]"},
            .options = copies_options(),
            .text = copies_explanation,
            .arguments = {.files = false},
            .values = {{"bucket-dtype", one_of(every<DType>)}}};
}

int run_bench_copies(const CommandLine& line) {
    const po::variables_map& values = line.values;
    refuse_scenario(values, "bench copies");
    const Backend& backend = requested_backend(values);
    backend.check({});
    const std::vector<CopyCase> cases = requested_cases(values);
    const std::int64_t rounds = whole_number(values, "rounds", {1, 100'000});
    const auto format = choice_value(values, "format", every<TableFormat>);
    const std::unique_ptr<CopyBench> bench = backend.copies();
    std::vector<Row> rows;
    for (const CopyCase& copy_case : cases) {
        const std::vector<Row> of_case = rows_of(copy_case, bench->run(copy_case, rounds));
        rows.insert(rows.end(), of_case.begin(), of_case.end());
    }
    EnvironmentRecord environment;
    environment.machine = read_environment();
    environment.gpu = backend.first_gpu();
    const std::string hardware = hardware_of(environment);
    write_output("-", format == TableFormat::text ? text_report(rows, hardware)
                      : format == TableFormat::csv
                          ? csv_report(rows)
                          : json_report(rows, hardware, backend.libraries()));
    return exit_done;
}

}  // namespace bucketwise
