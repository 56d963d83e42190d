#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "cli/shell/files.h"
#include "cli/shell/size.h"
#include "hw/gloo/predicted_all_reduce.h"
#include "hw/rank/communicator.h"
#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/base/json_input.h"
#include "sim/link/collective.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

constexpr std::array replacing{Algorithm::ring, Algorithm::direct,
                               Algorithm::recursive_halving_doubling,
                               Algorithm::double_binary_tree};

// One term of one rank takes some 10 ns, so a row takes a second at most.
constexpr std::int64_t most_terms = 100'000'000;

LinkParameters read_link_file(const std::string& path) {
    check_can_be_read_again(path);
    // A fault in the JSON is then reported in this file.
    const Json document = parse_json(read_link_text(path), path);
    LinkParameters link = read_link({&document, path, ""}, read_text_file);
    if (link.algorithm == Algorithm::hierarchical) {
        throw InputError(path, "/algorithm",
                         "a link of one tier, as nothing here says how many ranks a node has",
                         "hierarchical");
    }
    if (link.topology) {
        throw InputError(path, "/topology",
                         "a link with segments; bucketwise link show prints what a topology costs",
                         "a topology");
    }
    return link;
}

void add_memory_and_rounding(const SimulationRequest& request, DType dtype, BenchRow& row) {
    const std::int64_t ranks = row["world_size"];
    const std::int64_t elements = row["tensor_elements"];
    for (const AllReduceImplementation implementation : every<AllReduceImplementation>) {
        if (row["algorithm"] != name_of(implementation)) {
            continue;
        }
        const double added_kib =
            in_kib(row["bytes"].get<std::int64_t>() +
                   all_reduce_scratch(implementation, elements, dtype, ranks).count);
        row["simulated_added_memory_kib"] = added_kib;
        if (const auto before = number_in(row, "memory_before_kib")) {
            row["simulated_memory_kib"] = *before + added_kib;
        } else if (request.process_memory) {
            row["simulated_memory_kib"] = in_kib(request.process_memory->count) + added_kib;
        }
        if (elements <= most_terms / ranks) {
            row["simulated_difference"] =
                all_reduce_difference(implementation, elements, dtype, ranks);
        }
    }
}

struct Crossover {
    std::int64_t ranks = 0;  // the first with `faster`
    std::string faster;
    bool operator==(const Crossover&) const = default;
};

std::optional<Crossover> crossover(CollectiveKind kind, const SimulatedAlgorithm& ring,
                                   const SimulatedAlgorithm& direct, Bytes size) {
    constexpr std::int64_t most_ranks = 4096;
    const auto direct_is_faster = [&](std::int64_t ranks) {
        const auto time = [&](const SimulatedAlgorithm& algorithm) {
            return collective_time(kind, size, {ranks, ranks}, algorithm.link);
        };
        return time(direct) < time(ring);
    };
    const bool at_two = direct_is_faster(2);
    for (std::int64_t ranks = 3; ranks <= most_ranks; ++ranks) {
        if (direct_is_faster(ranks) != at_two) {
            return Crossover{ranks, at_two ? ring.name : direct.name};
        }
    }
    return std::nullopt;
}

const SimulatedAlgorithm* find(const SimulationRequest& request, std::string_view name) {
    const auto found = std::ranges::find(request.algorithms, name, &SimulatedAlgorithm::name);
    return found == request.algorithms.end() ? nullptr : &*found;
}

}  // namespace

std::vector<SimulatedAlgorithm> read_simulated_algorithms(
    const std::string& links, const std::vector<std::string>& algorithms) {
    const std::vector<std::string> files = split_at_commas(links);
    if (files.size() != 1 && files.size() != algorithms.size()) {
        throw InputError(
            "--link", "",
            fmt::format("one link file, or one for each of {}", fmt::join(algorithms, ", ")),
            fmt::format("{} files", files.size()));
    }
    std::vector<SimulatedAlgorithm> simulated;
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
        const std::string& file = files.size() == 1 ? files.front() : files[i];
        LinkParameters link = read_link_file(file);
        const auto* const algorithm = std::ranges::find(
            replacing, algorithms[i], [](Algorithm known) { return name_of(known); });
        if (algorithm != replacing.end()) {
            if (files.size() > 1 && link.algorithm != *algorithm) {
                throw InputError(file, "/algorithm",
                                 fmt::format("\"{}\", which it was named for", algorithms[i]),
                                 fmt::format("\"{}\"", name_of(link.algorithm)));
            }
            link.algorithm = *algorithm;
        }
        const std::string& backend = link.provenance.backend;
        simulated.push_back({algorithms[i], link, backend.empty() || backend == "gloo"});
    }
    return simulated;
}

void add_simulated(const SimulationRequest& request, DType dtype, BenchRow& row) {
    const SimulatedAlgorithm* const algorithm =
        find(request, row["algorithm"].get_ref<const std::string&>());
    if (algorithm == nullptr) {
        return;
    }
    const std::int64_t ranks = row["world_size"];
    const Bytes size{row["bytes"].get<std::int64_t>()};
    row["simulated_time_s"] =
        to_us(collective_time(request.kind, size, {ranks, ranks}, algorithm->link)) * 1e-6;
    if (algorithm->over_gloo && request.kind == CollectiveKind::all_reduce) {
        add_memory_and_rounding(request, dtype, row);
    }
}

std::vector<std::string> crossovers(const SimulationRequest& request,
                                    const std::vector<Bytes>& sizes) {
    const SimulatedAlgorithm* const ring = find(request, "ring");
    const SimulatedAlgorithm* const direct = find(request, "direct");
    std::vector<std::string> sentences;
    if (ring == nullptr || direct == nullptr) {
        return sentences;
    }
    for (std::size_t first = 0; first < sizes.size();) {
        const auto at = [&](std::size_t i) {
            return crossover(request.kind, *ring, *direct, sizes[i]);
        };
        const std::optional<Crossover> found = at(first);
        std::size_t last = first;
        while (last + 1 < sizes.size() && at(last + 1) == found) {
            ++last;
        }
        if (found) {
            sentences.push_back(fmt::format("simulated, {}{}: {} is the faster from {} ranks on",
                                            message_text(sizes[first]),
                                            last > first ? " to " + message_text(sizes[last]) : "",
                                            found->faster, found->ranks));
        }
        first = last + 1;
    }
    return sentences;
}

}  // namespace bucketwise
