// How fast a profiler's trace is read, as it is and compressed, unpacked by a thread of its own.
// Reports, asserts nothing.
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "import/kineto/kineto_trace.h"
#include "import/source/byte_source.h"
#include "import/source/inflate.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// As Kineto writes them: of three events an operation, its launch and its kernel.
std::string trace_text(std::size_t bytes) {
    std::string text = "{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [";
    for (std::int64_t i = 0; text.size() < bytes; ++i) {
        text += i == 0 ? "" : ",";
        const double ts = 4'458'676'522'690.655 + 20.125 * static_cast<double>(i);
        const auto event = [&](const char* category, std::string_view name, std::string_view args) {
            return fmt::format(
                "\n  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": 2910249, "
                "\"tid\": 2919752,\n    \"ts\": {:.3f}, \"dur\": {}.777,\n    \"args\": {{\n      "
                "{}\n    }}\n  }}",
                category, name, ts, i % 97, args);
        };
        text +=
            event(
                "cpu_op",
                i % 9 == 0 ? "autograd::engine::evaluate_function: AddmmBackward0" : "aten::addmm",
                fmt::format("\"External id\": {},\"Record function id\": {}, \"Sequence number\": "
                            "{}, \"Fwd thread id\": 1, \"Ev Idx\": {}",
                            i, i, i, i)) +
            "," +
            event("cuda_runtime", "cudaLaunchKernel",
                  fmt::format("\"External id\": {}, \"cbid\": 211, \"correlation\": {}", i, i)) +
            "," +
            event("kernel",
                  "void at::native::vectorized_elementwise_kernel<4, at::native::"
                  "CUDAFunctor_add<float>, at::detail::Array<char*, 3>>(int)",
                  fmt::format("\"External id\": {}, \"queued\": 0, \"device\": 0, \"context\": 1,\n"
                              "      \"stream\": 7, \"correlation\": {},\n      \"grid\": [256, 1, "
                              "1],\n      \"block\": [512, 1, 1]",
                              i, i));
    }
    return text + "\n  ],\n  \"traceName\": \"bench\"\n}\n";
}

std::string gzip_of(std::string text) {
    z_stream stream{};
    constexpr int gzip_window = 15 + 16;
    invariant(deflateInit2(&stream, 6, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) == Z_OK,
              "zlib can write gzip");
    std::string result(deflateBound(&stream, text.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(result.data());
    stream.avail_out = static_cast<uInt>(result.size());
    invariant(deflate(&stream, Z_FINISH) == Z_STREAM_END, "there is room");
    result.resize(stream.total_out);
    deflateEnd(&stream);
    return result;
}

void read_trace(benchmark::State& state, bool compressed) {
    const std::string text = trace_text(std::size_t{32} << 20);
    const std::string file = compressed ? gzip_of(text) : text;
    for (auto _ : state) {
        std::string_view left = file;
        const ByteSource source = [&left](char* buffer, std::size_t size) {
            const std::size_t count = left.copy(buffer, size);
            left.remove_prefix(count);
            return count;
        };
        benchmark::DoNotOptimize(read_kineto_trace(read_ahead(inflated(source, "bench")), "bench"));
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK_CAPTURE(read_trace, plain, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(read_trace, gzip, true)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace bucketwise
