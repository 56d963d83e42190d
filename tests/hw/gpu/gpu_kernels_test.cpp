// Our own kernels against elements.h's passes on the host, which share no code with them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "hw/compute/elements.h"
#include "hw/gpu/chunk_table.h"
#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/matrix_products.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Bytes_ = std::vector<std::byte>;

void wait_for(const GpuStream& stream) {
    stream.wait();
}

Bytes_ contents(const DeviceMemory& memory) {
    Bytes_ bytes(static_cast<std::size_t>(memory.size_bytes()));
    memory.copy_out(bytes.data(), 0, memory.size_bytes());
    return bytes;
}

// Values of the dtype as it stores them, none of them zero.
Bytes_ random_elements(std::int64_t count, DType dtype, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(0.5, 2.0);
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values) {
        value = uniform(generator) * (generator() % 2 == 0 ? 1 : -1);
    }
    Bytes_ bytes(static_cast<std::size_t>(count * element_size(dtype).count));
    cast_scaled(bytes.data(), dtype, values.data(), DType::float64, count, 1.0);
    return bytes;
}

void upload(DeviceMemory& memory, const Bytes_& bytes, std::int64_t offset = 0) {
    memory.copy_in(bytes.data(), offset, static_cast<std::int64_t>(bytes.size()));
}

constexpr auto poison = std::byte{0xFF};

DeviceMemory poisoned(std::int64_t bytes) {
    DeviceMemory memory(bytes);
    upload(memory, Bytes_(static_cast<std::size_t>(bytes), poison));
    return memory;
}

std::int64_t first_difference(const Bytes_& a, const Bytes_& b) {
    const auto mismatch = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return mismatch.first == a.end() && a.size() == b.size() ? -1 : mismatch.first - a.begin();
}

// Sizes around everything that kernels cut by: an element, 16 bytes, a warp's turn, a chunk.
const std::vector<std::int64_t> ragged_sizes{
    1,   2,   3,    7,    8,    9,    31,   32,   33,   127,  128,   129,    511,
    512, 513, 2047, 2048, 2049, 4095, 4096, 4097, 5000, 8192, 12289, 100'003};

TEST_CASE("a copy between any two dtypes is the host's, at every size and alignment", "[kernels]") {
    const GpuStream stream;
    for (const DType to_dtype : every<DType>) {
        for (const DType from_dtype : every<DType>) {
            const std::int64_t to_size = element_size(to_dtype).count;
            const std::int64_t from_size = element_size(from_dtype).count;
            for (const std::int64_t count : ragged_sizes) {
                const std::int64_t skip_to = count % 5;  // elements: 16-byte aligned or not
                const std::int64_t skip_from = count % 3;
                const Bytes_ values = random_elements(count + skip_from, from_dtype,
                                                      static_cast<std::uint32_t>(count));
                DeviceMemory from(static_cast<std::int64_t>(values.size()));
                upload(from, values);
                DeviceMemory to = poisoned((count + skip_to + 1) * to_size);
                const double factor = count % 2 == 0 ? 1.0 : 1.0 / 3;
                launch_copy(stream.get(), to.at(skip_to * to_size), to_dtype,
                            from.at(skip_from * from_size), from_dtype, count, factor);
                wait_for(stream);
                Bytes_ expected(static_cast<std::size_t>(to.size_bytes()), poison);
                cast_scaled(expected.data() + skip_to * to_size, to_dtype,
                            values.data() + skip_from * from_size, from_dtype, count, factor);
                INFO(name_of(from_dtype) << " to " << name_of(to_dtype) << ", " << count);
                CHECK(first_difference(contents(to), expected) == -1);
            }
        }
    }
}

// --- packing -------------------------------------------------------------------------------------

// Tensors, each in memory of its own, and one bucket where they lie side by side.
struct PackedTensors {
    std::vector<std::int64_t> sizes;
    DType tensor_dtype;
    DType place_dtype;
    std::vector<Bytes_> values = {};
    std::vector<DeviceMemory> tensors = {};
    DeviceMemory bucket = DeviceMemory();
    ChunkTable chunks = ChunkTable();

    void make() {
        std::int64_t elements = 0;
        for (const std::int64_t size : sizes) {
            elements += size;
        }
        const std::int64_t place_size = element_size(place_dtype).count;
        bucket = poisoned(elements * place_size);
        std::vector<TensorPlace> places;
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            values.push_back(
                random_elements(sizes[i], tensor_dtype, static_cast<std::uint32_t>(i + 1)));
            tensors.emplace_back(static_cast<std::int64_t>(values.back().size()));
            upload(tensors.back(), values.back());
            places.push_back({.tensor = tensors.back().at(0),
                              .place = bucket.at(offset * place_size),
                              .numel = sizes[i],
                              .tensor_index = static_cast<std::int64_t>(i)});
            offset += sizes[i];
        }
        chunks = ChunkTable(places);
    }

    [[nodiscard]] Bytes_ expected_bucket(double factor) const {
        Bytes_ expected;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            Bytes_ part(static_cast<std::size_t>(sizes[i] * element_size(place_dtype).count));
            cast_scaled(part.data(), place_dtype, values[i].data(), tensor_dtype, sizes[i], factor);
            expected.insert(expected.end(), part.begin(), part.end());
        }
        return expected;
    }
};

TEST_CASE(
    "one launch packs many tensors into a bucket, scaled and cast, and another unpacks them") {
    const GpuStream stream;
    for (const DType tensor_dtype : every<DType>) {
        for (const DType place_dtype : every<DType>) {
            for (const bool ragged : {false, true}) {
                // Whole words first: the aligned path. Then one element that misaligns all after
                // it.
                std::vector<std::int64_t> sizes{4096, 64, 8192, 1024, 16};
                if (ragged) {
                    sizes = ragged_sizes;
                }
                PackedTensors packed{sizes, tensor_dtype, place_dtype};
                packed.make();
                const double factor = 0.25;
                launch_pack(stream.get(), PackDirection::into_place, packed.chunks.data(),
                            packed.chunks.count(), place_dtype, tensor_dtype, factor);
                wait_for(stream);
                INFO(name_of(tensor_dtype) << " to " << name_of(place_dtype) << ragged);
                const Bytes_ bucket = contents(packed.bucket);
                CHECK(first_difference(bucket, packed.expected_bucket(factor)) == -1);
                launch_pack(stream.get(), PackDirection::out_of_place, packed.chunks.data(),
                            packed.chunks.count(), tensor_dtype, place_dtype, 3.0);
                wait_for(stream);
                std::int64_t offset = 0;
                for (std::size_t i = 0; i < sizes.size(); ++i) {
                    Bytes_ expected(packed.values[i].size());
                    cast_scaled(expected.data(), tensor_dtype, bucket.data() + offset, place_dtype,
                                sizes[i], 3.0);
                    CHECK(first_difference(contents(packed.tensors[i]), expected) == -1);
                    offset += sizes[i] * element_size(place_dtype).count;
                }
            }
        }
    }
}

TEST_CASE("chunks cover every tensor once and stay within it", "[kernels]") {
    const std::vector<Chunk> chunks = chunks_of({{.numel = 1, .tensor_index = 0},
                                                 {.numel = 0, .tensor_index = 1},
                                                 {.numel = 2 * chunk_elements, .tensor_index = 2},
                                                 {.numel = chunk_elements + 1, .tensor_index = 3}});
    std::vector<std::int64_t> covered(4, 0);
    for (const Chunk& chunk : chunks) {
        std::int64_t& end = covered[static_cast<std::size_t>(chunk.tensor_index)];
        CHECK(chunk.begin == end);
        CHECK(chunk.count >= 1);
        CHECK(chunk.count <= chunk_elements);
        end += chunk.count;
    }
    CHECK(covered == std::vector<std::int64_t>{1, 0, 2 * chunk_elements, chunk_elements + 1});
    CHECK(chunks.size() == 5);  // 1 + 0 + 2 + 2
}

// --- backward and the optimizer ------------------------------------------------------------------

TEST_CASE("sums of any two dtypes are the host's, at every size", "[kernels]") {
    const GpuStream stream;
    for (const DType to_dtype : every<DType>) {
        for (const DType from_dtype : every<DType>) {
            for (const std::int64_t count : ragged_sizes) {
                Bytes_ expected = random_elements(count, to_dtype, 1);
                const Bytes_ addend = random_elements(count, from_dtype, 2);
                DeviceMemory to(static_cast<std::int64_t>(expected.size()));
                DeviceMemory from(static_cast<std::int64_t>(addend.size()));
                upload(to, expected);
                upload(from, addend);
                launch_add(stream.get(), to.at(0), to_dtype, from.at(0), from_dtype, count);
                wait_for(stream);
                add_cast(expected.data(), to_dtype, addend.data(), from_dtype, count);
                Bytes_ got = contents(to);
                got.resize(expected.size());
                INFO(name_of(from_dtype) << " to " << name_of(to_dtype) << ", " << count);
                CHECK(first_difference(got, expected) == -1);
            }
        }
    }
}

TEST_CASE("an outer product is written, or added to what is there, in every dtype", "[kernels]") {
    const GpuStream stream;
    for (const DType dtype : every<DType>) {
        for (const bool accumulate : {false, true}) {
            constexpr std::int64_t columns = 37;
            constexpr std::int64_t count = 37 * 11 - 5;  // the last row is not whole
            std::vector<float> rows;
            std::vector<float> pattern;
            for (int i = 0; i < 11; ++i) {
                rows.push_back(static_cast<float>(1 + i % 4));
            }
            for (int j = 0; j < columns; ++j) {
                pattern.push_back(static_cast<float>(1 + j % 8));
            }
            const DeviceMemory device_rows = DeviceMemory::of(rows);
            const DeviceMemory device_pattern = DeviceMemory::of(pattern);
            const Bytes_ before = random_elements(count, dtype, 5);
            DeviceMemory to(static_cast<std::int64_t>(before.size()));
            upload(to, before);
            launch_outer_product(stream.get(), to.at(0), dtype, count,
                                 {.rows = device_rows.as<float>(),
                                  .pattern = device_pattern.as<float>(),
                                  .columns = columns,
                                  .factor = 2.0F},
                                 accumulate);
            wait_for(stream);
            Bytes_ expected = before;
            const std::int64_t size = element_size(dtype).count;
            for (std::int64_t begin = 0; begin < count; begin += columns) {
                store_scaled(expected.data() + begin * size, dtype, pattern.data(),
                             std::min(columns, count - begin),
                             2.0F * rows[static_cast<std::size_t>(begin / columns)], accumulate);
            }
            INFO(name_of(dtype) << accumulate);
            CHECK(first_difference(contents(to), expected) == -1);
        }
    }
}

TEST_CASE("an element-wise pass reads two tensors and writes one, whole", "[kernels]") {
    const GpuStream stream;
    for (const DType dtype : every<DType>) {
        for (const std::int64_t count : ragged_sizes) {
            const Bytes_ x_values = random_elements(count, dtype, 1);
            const Bytes_ y_values = random_elements(count, dtype, 2);
            DeviceMemory x(static_cast<std::int64_t>(x_values.size()));
            DeviceMemory y(static_cast<std::int64_t>(y_values.size()));
            upload(x, x_values);
            upload(y, y_values);
            launch_element_wise(stream.get(), y.at(0), x.at(0), dtype, count);
            wait_for(stream);
            const Bytes_ result = contents(y);
            std::int64_t wrong = -1;
            // One rounding to the dtype, and those of float32 before it.
            const double unit = dtype == DType::bfloat16  ? 0x1p-8
                                : dtype == DType::float16 ? 0x1p-11
                                : dtype == DType::float32 ? 0x1p-22
                                                          : 0x1p-51;
            for (std::int64_t i = 0; i < count; ++i) {
                const double exact = 0.5 * element_at(y_values.data(), dtype, i) +
                                     element_at(x_values.data(), dtype, i) + 1.0;
                const double got = element_at(result.data(), dtype, i);
                if (!(std::abs(got - exact) <= 4 * unit)) {
                    wrong = i;
                }
            }
            INFO(name_of(dtype) << ", " << count);
            CHECK(wrong == -1);
        }
    }
}

TEST_CASE("an optimizer keeps its moments for every parameter", "[kernels]") {
    const GpuStream stream;
    const std::vector<std::int64_t> sizes{5, 4097, 64};
    constexpr std::int64_t all = 5 + 4097 + 64;
    for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::sgd_momentum, Optimizer::adam}) {
        DeviceMemory parameters(all * 4);
        DeviceMemory moments(2 * all * 4);
        std::vector<DeviceMemory> gradients;
        std::vector<TensorPlace> places;
        std::vector<Bytes_> values;
        std::int64_t offset = 0;
        for (const std::int64_t size : sizes) {
            values.push_back(
                random_elements(size, DType::float32, static_cast<std::uint32_t>(size)));
            gradients.emplace_back(size * 4);
            upload(gradients.back(), values.back());
            places.push_back({.tensor = gradients.back().at(0),
                              .place = parameters.at(4 * offset),
                              .numel = size});
            offset += size;
        }
        const ChunkTable chunks(places);
        const OptimizerState state{.first_moments = moments.as<float>(),
                                   .second_moments = moments.as<float>() + all,
                                   .parameters = parameters.as<float>()};
        for (int step = 0; step < 2; ++step) {
            launch_optimizer(stream.get(), chunks.data(), chunks.count(), DType::float32, optimizer,
                             state);
        }
        wait_for(stream);
        const Bytes_ result = contents(moments);
        std::int64_t element = 0;
        for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
            for (std::int64_t i = 0; i < sizes[tensor]; ++i, ++element) {
                const double g = element_at(values[tensor].data(), DType::float32, i);
                // After two equal gradients: m = 0.9 (c g) + c g with c = 1 or 0.1; v alike.
                const double m = optimizer == Optimizer::sgd            ? 0
                                 : optimizer == Optimizer::sgd_momentum ? 1.9 * g
                                                                        : 0.19 * g;
                const double v = optimizer == Optimizer::adam ? 0.001999 * g * g : 0;
                if (std::abs(element_at(result.data(), DType::float32, element) - m) >
                        1e-6 * std::abs(g) ||
                    std::abs(element_at(result.data(), DType::float32, all + element) - v) >
                        1e-6 * g * g) {
                    FAIL("moment of element " << element);
                }
            }
        }
    }
}

// --- checking ------------------------------------------------------------------------------------

TEST_CASE("a check finds the first wrong element of each tensor, and what is no number",
          "[kernels]") {
    const GpuStream stream;
    constexpr std::int64_t columns = 8;
    constexpr std::int64_t numel = 10'000;
    const std::vector<float> rows(numel / columns, 2.0F);
    const std::vector<float> pattern(columns, 3.0F);
    const DeviceMemory device_rows = DeviceMemory::of(rows);
    const DeviceMemory device_pattern = DeviceMemory::of(pattern);
    // Expected 2 x 3 x 0.5 = 3 everywhere. Tensor 0 is right, 1 wrong twice, 2 holds a NaN last, 3
    // is off by less than its tolerance.
    std::vector<std::vector<float>> values(4, std::vector<float>(numel, 3.0F));
    values[1][7777] = 4.0F;
    values[1][5555] = 5.0F;
    values[2][numel - 1] = std::nanf("");
    values[3][42] = 3.001F;
    std::vector<DeviceMemory> tensors;
    std::vector<TensorPlace> places;
    for (const std::vector<float>& tensor : values) {
        tensors.emplace_back(4 * numel);
        tensors.back().write(tensor);
        places.push_back({.tensor = tensors.back().at(0),
                          .numel = numel,
                          .tensor_index = static_cast<std::int64_t>(places.size())});
    }
    const ChunkTable chunks(places);
    const std::vector<ExpectedProduct> expected(4, {.rows = device_rows.as<float>(),
                                                    .pattern = device_pattern.as<float>(),
                                                    .columns = columns,
                                                    .factor = 0.5,
                                                    .tolerance = 1e-3});
    const DeviceMemory device_expected = DeviceMemory::of(expected);
    std::vector<CheckResult> results(4);
    const DeviceMemory device_results = DeviceMemory::of(results);
    launch_check(stream.get(), chunks.data(), chunks.count(), DType::float32,
                 device_expected.as<ExpectedProduct>(), device_results.as<CheckResult>());
    wait_for(stream);
    device_results.copy_out(results.data(), 0, device_results.size_bytes());
    const auto difference = [&](std::size_t i) {
        return std::bit_cast<double>(results[i].largest_difference_bits);
    };
    CHECK(results[0].first_wrong == -1);
    CHECK(difference(0) == 0.0);
    CHECK(results[1].first_wrong == 5555);
    CHECK(difference(1) == 2.0);
    CHECK(results[2].first_wrong == numel - 1);
    CHECK(std::isinf(difference(2)));
    CHECK(results[3].first_wrong == -1);
    CHECK(difference(3) == double{3.001F} - 3.0);
}

// --- matrix products -----------------------------------------------------------------------------

double unit_of(Arithmetic arithmetic) {
    switch (beside_float8(arithmetic)) {
        case Arithmetic::float64:
            return 0x1p-52;
        case Arithmetic::float32:
            return 0x1p-23;
        case Arithmetic::tfloat32:
        case Arithmetic::float16:
            return 0x1p-10;
        default:
            return 0x1p-7;
    }
}

TEST_CASE("the three products of a layer are those of its row-major matrices") {
    const GpuStream stream;
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        const DType dtype = operand_dtype(arithmetic);
        MatrixProducts products(stream, arithmetic);
        const MatrixProduct p{.m = 9, .n = 14, .k = 22, .count = 3};
        const Bytes_ a_values = random_elements(p.count * p.m * p.k, dtype, 1);
        const Bytes_ b_values = random_elements(p.count * p.k * p.n, dtype, 2);
        const Bytes_ c_values = random_elements(p.count * p.m * p.n, dtype, 3);
        DeviceMemory a(static_cast<std::int64_t>(a_values.size()));
        DeviceMemory b(static_cast<std::int64_t>(b_values.size()));
        DeviceMemory c(static_cast<std::int64_t>(c_values.size()));
        upload(a, a_values);
        upload(b, b_values);
        upload(c, c_values);
        const auto at = [&](const Bytes_& values, std::int64_t i) {
            return element_at(values.data(), dtype, i);
        };
        const auto close = [&](const DeviceMemory& memory, DType result_dtype, std::int64_t i,
                               double exact, double scale) {
            const Bytes_ got = contents(memory);
            return std::abs(element_at(got.data(), result_dtype, i) - exact) <=
                   4 * scale * unit_of(arithmetic);
        };
        INFO(name_of(arithmetic));
        DeviceMemory forward = poisoned(static_cast<std::int64_t>(c_values.size()));
        products.forward(p, a.at(0), b.at(0), forward.at(0));
        DeviceMemory input = poisoned(static_cast<std::int64_t>(a_values.size()));
        products.input_gradient(p, c.at(0), b.at(0), input.at(0));
        for (const DType result_dtype : every<DType>) {
            if (!can_write(arithmetic, result_dtype)) {
                continue;
            }
            const Bytes_ before = random_elements(p.count * p.k * p.n, result_dtype, 4);
            DeviceMemory weight(static_cast<std::int64_t>(before.size()));
            upload(weight, before);
            products.weight_gradient(p, a.at(0), c.at(0), weight.at(0), result_dtype, 0.5, 1.0);
            wait_for(stream);
            bool all_close = true;
            for (std::int64_t batch = 0; batch < p.count; ++batch) {
                for (std::int64_t k = 0; k < p.k; ++k) {
                    for (std::int64_t n = 0; n < p.n; ++n) {
                        double sum = 0;
                        double scale = 4;
                        for (std::int64_t m = 0; m < p.m; ++m) {
                            const double term = at(a_values, (batch * p.m + m) * p.k + k) *
                                                at(c_values, (batch * p.m + m) * p.n + n);
                            sum += term;
                            scale += std::abs(term);
                        }
                        const std::int64_t i = (batch * p.k + k) * p.n + n;
                        const double exact = 0.5 * sum + element_at(before.data(), result_dtype, i);
                        all_close = all_close && close(weight, result_dtype, i, exact, scale);
                    }
                }
            }
            INFO("into " << name_of(result_dtype));
            CHECK(all_close);
        }
        wait_for(stream);
        bool forward_close = true;
        bool input_close = true;
        for (std::int64_t batch = 0; batch < p.count; ++batch) {
            for (std::int64_t m = 0; m < p.m; ++m) {
                for (std::int64_t n = 0; n < p.n; ++n) {
                    double sum = 0;
                    for (std::int64_t k = 0; k < p.k; ++k) {
                        sum += at(a_values, (batch * p.m + m) * p.k + k) *
                               at(b_values, (batch * p.k + k) * p.n + n);
                    }
                    forward_close = forward_close &&
                                    close(forward, dtype, (batch * p.m + m) * p.n + n, sum, 60);
                }
                for (std::int64_t k = 0; k < p.k; ++k) {
                    double sum = 0;
                    for (std::int64_t n = 0; n < p.n; ++n) {
                        sum += at(c_values, (batch * p.m + m) * p.n + n) *
                               at(b_values, (batch * p.k + k) * p.n + n);
                    }
                    input_close =
                        input_close && close(input, dtype, (batch * p.m + m) * p.k + k, sum, 60);
                }
            }
        }
        CHECK(forward_close);
        CHECK(input_close);
    }
}

}  // namespace
}  // namespace bucketwise
