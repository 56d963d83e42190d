#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "hw/gloo/connection.h"
#include "hw/rank/communicator.h"
#include "tests/catch.h"
#include "tests/hw/compute/number_format.h"
#include "tests/hw/gloo/gloo_ranks.h"

namespace bucketwise {
namespace {

using testing::NumberFormat;
using testing::on_ranks;

using Memory = std::vector<char>;

NumberFormat format_of(DType dtype) {
    switch (dtype) {
        case DType::float16:
            return testing::format_of_float16;
        case DType::bfloat16:
            return testing::format_of_bfloat16;
        case DType::float32:
            return testing::format_of_float32;
        case DType::float64:
            break;
    }
    return testing::format_of_float64;
}

void store(DType dtype, Memory& memory, std::size_t index, long double value) {
    const auto size = static_cast<std::size_t>(element_size(dtype).count);
    const std::uint64_t bits = testing::encoded(format_of(dtype), value);
    std::memcpy(memory.data() + index * size, &bits, size);  // little-endian
}

long double load(DType dtype, const Memory& memory, std::size_t index) {
    const auto size = static_cast<std::size_t>(element_size(dtype).count);
    std::uint64_t bits = 0;
    std::memcpy(&bits, memory.data() + index * size, size);
    return testing::decoded(format_of(dtype), bits);
}

struct Case {
    int ranks = 1;
    std::int64_t elements = 0;
    DType dtype = DType::float32;
    bool whole = false;  // numbers small enough that every sum is exact
};

// Each rank's values. Fractions use every bit of the type.
std::vector<long double> values_of(const Case& c, int rank) {
    std::seed_seq seed{c.ranks, static_cast<int>(c.elements), static_cast<int>(c.dtype), rank};
    std::mt19937_64 random(seed);
    const int bits = format_of(c.dtype).mantissa_bits + 1;
    std::vector<long double> values;
    for (std::int64_t i = 0; i < c.elements; ++i) {
        const std::uint64_t drawn = random();
        if (c.whole) {
            values.push_back(static_cast<long double>(drawn % 17) - 8.0L);
        } else {
            const auto significand = static_cast<long double>(drawn >> (64 - bits));
            values.push_back(std::ldexp((drawn & 1) != 0 ? significand : -significand, -bits));
        }
    }
    return values;
}

Memory memory_of(const Case& c, int rank) {
    Memory memory(static_cast<std::size_t>(c.elements * element_size(c.dtype).count));
    const std::vector<long double> values = values_of(c, rank);
    for (std::size_t i = 0; i < values.size(); ++i) {
        store(c.dtype, memory, i, values[i]);
    }
    return memory;
}

// By rank.
using Results = std::vector<Memory>;

bool all_equal(const Results& results) {
    return std::all_of(results.begin(), results.end(),
                       [&](const Memory& memory) { return memory == results.front(); });
}

struct Expected {
    std::vector<long double> sum;
    std::vector<long double> magnitude;  // sum of the absolute values
};

Expected expected_of(const Case& c) {
    Expected expected{std::vector<long double>(static_cast<std::size_t>(c.elements)),
                      std::vector<long double>(static_cast<std::size_t>(c.elements))};
    for (int rank = 0; rank < c.ranks; ++rank) {
        const std::vector<long double> values = values_of(c, rank);
        for (std::size_t i = 0; i < values.size(); ++i) {
            expected.sum[i] += values[i];
            expected.magnitude[i] += std::fabs(values[i]);
        }
    }
    return expected;
}

// p values are added with p-1 additions, in whatever order. Each rounds with a relative error of at
// most u, so the sum is off by at most k u / (1 - k u) times the sum of the absolute values, with
// k = p-1 (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 4.2). Subnormal
// results of an addition are exact. The reference, a sum in long double, is off by as much with
// u = 2^-64.
long double error_bound(const Case& c) {
    const long double additions = c.ranks - 1;
    const long double ku = additions * format_of(c.dtype).unit_roundoff();
    return c.whole ? 0.0L : ku / (1 - ku) + additions * 0x1p-63L;
}

int elements_beyond_bound(const Case& c, const Expected& expected, const Memory& result) {
    const long double bound = error_bound(c);
    int beyond = 0;
    for (std::size_t i = 0; i < expected.sum.size(); ++i) {
        const long double error = std::fabs(load(c.dtype, result, i) - expected.sum[i]);
        beyond += error <= bound * expected.magnitude[i] ? 0 : 1;
    }
    return beyond;
}

// Both are within the bound of the exact sum, so within twice the bound of each other.
int elements_apart(const Case& c, const Expected& expected, const Memory& a, const Memory& b) {
    const long double bound = 2 * error_bound(c);
    int apart = 0;
    for (std::size_t i = 0; i < expected.sum.size(); ++i) {
        const long double difference = std::fabs(load(c.dtype, a, i) - load(c.dtype, b, i));
        apart += difference <= bound * expected.magnitude[i] ? 0 : 1;
    }
    return apart;
}

// All cases have the same number of ranks. One connection serves them all, one after the other, by
// every implementation.
void check_all_reduces(const std::vector<Case>& cases) {
    const int ranks = cases.front().ranks;
    std::vector<std::array<Results, every<AllReduceImplementation>.size()>> results(cases.size());
    for (auto& by_implementation : results) {
        by_implementation.fill(Results(static_cast<std::size_t>(ranks)));
    }
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (std::size_t c = 0; c < cases.size(); ++c) {
            const Memory own = memory_of(cases[c], rank);
            for (std::size_t k = 0; k < every<AllReduceImplementation>.size(); ++k) {
                Memory memory = own;
                Communicator& communicator =
                    connection.communicator(every<AllReduceImplementation>.at(k));
                communicator.all_reduce_sum(memory.data(), cases[c].elements, cases[c].dtype);
                results[c].at(k)[static_cast<std::size_t>(rank)] = std::move(memory);
            }
        }
    }));
    for (std::size_t c = 0; c < cases.size(); ++c) {
        const Expected expected = expected_of(cases[c]);
        const Memory& library = results[c].at(0).front();
        for (std::size_t k = 0; k < every<AllReduceImplementation>.size(); ++k) {
            const Memory& result = results[c].at(k).front();
            CAPTURE(ranks, cases[c].elements, name_of(cases[c].dtype),
                    name_of(every<AllReduceImplementation>.at(k)));
            CHECK(all_equal(results[c].at(k)));
            CHECK(elements_beyond_bound(cases[c], expected, result) == 0);
            CHECK(elements_apart(cases[c], expected, result, library) == 0);
        }
    }
}

TEST_CASE(
    "an all-reduce gives every rank the same sum, for every size around the number of ranks") {
    for (int ranks = 1; ranks <= 16; ++ranks) {
        std::vector<Case> cases;
        for (const std::int64_t elements : {0, 1, ranks - 1, ranks, ranks + 1, 1001}) {
            cases.push_back({ranks, elements, DType::float32, false});
        }
        for (const DType dtype : every<DType>) {
            cases.push_back({ranks, 2 * ranks + 1, dtype, true});
        }
        check_all_reduces(cases);
    }
}

TEST_CASE(
    "an all-reduce of every dtype is exact where the sums are, and else within its rounding") {
    for (const int ranks : {2, 3, 8}) {
        std::vector<Case> cases;
        for (const DType dtype : every<DType>) {
            for (const bool whole : {false, true}) {
                cases.push_back({ranks, 4099, dtype, whole});
            }
        }
        check_all_reduces(cases);
    }
}

// The library works on segments of 1 MiB at most: 1.2 million float32 on 2 ranks make three of them
// per chunk, the last one shorter.
TEST_CASE("a large all-reduce gives every rank the same sum") {
    check_all_reduces({{2, 1'200'001, DType::float32, false}});
    check_all_reduces({{3, 300'001, DType::float32, false}, {3, 300'001, DType::float64, true}});
    check_all_reduces({{5, 300'000, DType::bfloat16, false}});
}

// A rank may start the next all-reduce while its neighbours are still busy with this one.
TEST_CASE("all-reduces one after the other do not mix up their messages") {
    constexpr int ranks = 4;
    std::array<int, ranks> wrong{};
    testing::require_well(on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        for (int round = 0; round < 300; ++round) {
            std::vector<float> data(static_cast<std::size_t>(round % 11 + 1),
                                    static_cast<float>(round + rank));
            connection
                .communicator(
                    every<AllReduceImplementation>.at(static_cast<std::size_t>(round % 3)))
                .all_reduce_sum(data.data(), std::ssize(data), DType::float32);
            for (const float sum : data) {
                // round + 0, ..., round + 3
                wrong.at(static_cast<std::size_t>(rank)) +=
                    sum == static_cast<float>(4 * round + 6) ? 0 : 1;
            }
        }
    }));
    CHECK(wrong == std::array<int, ranks>{});
}

TEST_CASE("a broadcast gives every rank what the first has") {
    for (const int ranks : {1, 2, 5}) {
        for (const std::int64_t size : {0, 1, 1001, 300'000}) {
            std::vector<Memory> results(static_cast<std::size_t>(ranks));
            const auto outcomes = on_ranks(ranks, [&](GlooConnection& connection, int rank) {
                Memory memory(static_cast<std::size_t>(size), static_cast<char>(rank));
                if (rank == 0) {
                    for (std::size_t i = 0; i < memory.size(); ++i) {
                        memory[i] = static_cast<char>(i * 7 % 251);
                    }
                }
                connection.communicator(AllReduceImplementation::ring)
                    .broadcast_from_first(memory.data(), Bytes{size});
                results[static_cast<std::size_t>(rank)] = std::move(memory);
            });
            CAPTURE(ranks, size);
            REQUIRE(testing::first_reason(outcomes).empty());
            CHECK(all_equal(results));
            CHECK((size < 2 || results.back()[1] == 7));
        }
    }
}

void check_all_gather(int ranks, std::int64_t size, AllReduceImplementation implementation) {
    std::vector<Memory> results(static_cast<std::size_t>(ranks));
    const auto outcomes = on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        Communicator& communicator = connection.communicator(implementation);
        const Memory own(static_cast<std::size_t>(size), static_cast<char>(rank + 1));
        Memory all(static_cast<std::size_t>(ranks * size));
        communicator.all_gather(own.data(), all.data(), Bytes{size});
        // Once more in place, of blocks that are there already.
        communicator.all_gather(all.data() + rank * size, all.data(), Bytes{size});
        results[static_cast<std::size_t>(rank)] = std::move(all);
    });
    CAPTURE(ranks, size, name_of(implementation));
    REQUIRE(testing::first_reason(outcomes).empty());
    CHECK(all_equal(results));
    Memory expected;
    for (int rank = 0; rank < ranks; ++rank) {
        expected.insert(expected.end(), static_cast<std::size_t>(size),
                        static_cast<char>(rank + 1));
    }
    CHECK((results.front() == expected));
}

TEST_CASE("an all-gather puts the block of every rank in its place, on every rank") {
    for (const AllReduceImplementation implementation : every<AllReduceImplementation>) {
        for (const int ranks : {1, 2, 3, 8}) {
            for (const std::int64_t size : {0, 1, 1001, 300'000}) {
                check_all_gather(ranks, size, implementation);
            }
        }
    }
}

// All ranks' numbers are those of an all-reduce; a rank is to have its part of their sum.
void check_reduce_scatter(const Case& c, AllReduceImplementation implementation) {
    const std::int64_t part = c.elements / c.ranks;
    const std::int64_t part_bytes = part * element_size(c.dtype).count;
    Memory together(static_cast<std::size_t>(c.ranks * part_bytes));
    const auto outcomes = on_ranks(c.ranks, [&](GlooConnection& connection, int rank) {
        Memory memory = memory_of(c, rank);
        connection.communicator(implementation).reduce_scatter_sum(memory.data(), part, c.dtype);
        std::copy_n(memory.begin() + rank * part_bytes, part_bytes,
                    together.begin() + rank * part_bytes);
    });
    CAPTURE(c.ranks, c.elements, name_of(c.dtype), name_of(implementation));
    REQUIRE(testing::first_reason(outcomes).empty());
    CHECK(elements_beyond_bound(c, expected_of(c), together) == 0);
}

TEST_CASE("a reduce-scatter gives every rank its own part of the sum") {
    for (const AllReduceImplementation implementation : every<AllReduceImplementation>) {
        for (const int ranks : {1, 2, 3, 8}) {
            for (const std::int64_t part : {0, 1, 333}) {
                check_reduce_scatter({ranks, ranks * part, DType::float32, false}, implementation);
            }
            check_reduce_scatter({ranks, ranks * 1001LL, DType::bfloat16, true}, implementation);
            check_reduce_scatter({ranks, ranks * 1001LL, DType::float64, false}, implementation);
        }
        check_reduce_scatter({2, 600'002, DType::float32, false}, implementation);
    }
}

// Where both add in one order, as the direct ones do; a ring begins elsewhere.
TEST_CASE("a direct all-gather after a reduce-scatter is the all-reduce, to the bit") {
    constexpr std::int64_t part = 101;
    const Case c{5, 5 * part, DType::float16, false};
    Results whole(5);
    Results halves(5);
    testing::require_well(on_ranks(c.ranks, [&](GlooConnection& connection, int rank) {
        Communicator& communicator = connection.communicator(AllReduceImplementation::direct);
        Memory memory = memory_of(c, rank);
        communicator.all_reduce_sum(memory.data(), c.elements, c.dtype);
        whole[static_cast<std::size_t>(rank)] = std::move(memory);
        memory = memory_of(c, rank);
        const Bytes size = part * element_size(c.dtype);
        communicator.reduce_scatter_sum(memory.data(), part, c.dtype);
        communicator.all_gather(memory.data() + rank * size.count, memory.data(), size);
        halves[static_cast<std::size_t>(rank)] = std::move(memory);
    }));
    CHECK(halves == whole);
}

// Sums of four ranks, as powers of two.
TEST_CASE("groups of ranks sum among themselves, in the order that they were given") {
    std::array<std::array<std::int64_t, 4>, 4> seen{};  // by rank
    testing::require_well(on_ranks(4, [&](GlooConnection& connection, int rank) {
        std::array<std::int64_t, 4>& own = seen.at(static_cast<std::size_t>(rank));
        const auto sum = [rank](Communicator& among) {
            double value = 1 << rank;
            among.all_reduce_sum(&value, 1, DType::float64);
            return static_cast<std::int64_t>(value);
        };
        Communicator& halves =
            connection.communicator_among({rank % 2, rank % 2 + 2}, AllReduceImplementation::ring);
        own[0] = sum(halves);
        own[1] = halves.rank();
        // A group later than another, of other ranks; and a rank by itself.
        Communicator& pairs =
            connection.communicator_among({rank | 1, rank & ~1}, AllReduceImplementation::library);
        own[2] = sum(pairs) * 100 + pairs.rank();
        own[3] = connection.communicator_among({rank}, AllReduceImplementation::ring).ranks();
    }));
    // Ranks 0 and 2, 1 and 3; then 1 and 0, 3 and 2.
    CHECK(seen[0] == std::array<std::int64_t, 4>{5, 0, 301, 1});
    CHECK(seen[1] == std::array<std::int64_t, 4>{10, 0, 300, 1});
    CHECK(seen[2] == std::array<std::int64_t, 4>{5, 1, 1201, 1});
    CHECK(seen[3] == std::array<std::int64_t, 4>{10, 1, 1200, 1});
}

TEST_CASE("implementations of an all-reduce have names") {
    CHECK(name_of(AllReduceImplementation::library) == "library");
    CHECK(name_of(AllReduceImplementation::ring) == "ring");
    CHECK(name_of(AllReduceImplementation::direct) == "direct");
    CHECK(gloo_version().rfind("Gloo ", 0) == 0);
}

}  // namespace
}  // namespace bucketwise
