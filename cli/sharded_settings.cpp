#include "cli/sharded_settings.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cli/shell/option_values.h"
#include "hw/measure/measurer.h"
#include "hw/rank/replayed_step.h"
#include "sim/base/transformed.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

constexpr const char* sharding_option = "--sharding";
constexpr std::int64_t most_layers = 10'000;

ShardingRequest with_layers(ShardingRequest request, std::int64_t layers) {
    request.groups.clear();
    request.layers_per_group = layers;
    return request;
}

std::vector<ShardingRequest> automatic(const ShardingRequest& own, std::int64_t blocks) {
    std::vector<ShardingRequest> requests;
    for (std::int64_t layers = 1; layers < blocks; layers *= 2) {
        requests.push_back(with_layers(own, layers));
    }
    requests.push_back(with_layers(own, blocks));
    for (const std::int64_t layers : {std::int64_t{1}, blocks}) {
        ShardingRequest& kept = requests.emplace_back(with_layers(own, layers));
        kept.reshard_after_forward = false;
        kept.reshard_ranks.reset();
    }
    return requests;
}

ShardingRequest with_prefetch(ShardingRequest request, std::int64_t elements) {
    request.zero3.prefetch_elements = elements;
    return request;
}

ShardingRequest typed_setting(const std::string& text, const ShardingRequest& own,
                              std::int64_t blocks) {
    constexpr std::string_view suffix = "/keep";
    const bool keeps = text.ends_with(suffix);
    const std::string layers = keeps ? text.substr(0, text.size() - suffix.size()) : text;
    ShardingRequest request = with_layers(
        own, layers == "all" ? blocks : WholeNumbers{0, most_layers}(layers, sharding_option));
    request.reshard_after_forward = !keeps;
    request.reshard_ranks.reset();
    return request;
}

// For zero3: elements to prefetch.
std::vector<ShardingRequest> prefetches(const std::string& text, const ShardingRequest& own,
                                        std::int64_t elements) {
    if (text == "auto") {
        return {with_prefetch(own, 0), with_prefetch(own, elements / 4),
                with_prefetch(own, elements)};
    }
    constexpr std::int64_t most_elements = 1'000'000'000'000;
    return transformed(split_at_commas(text), [&](const std::string& setting) {
        return with_prefetch(own, setting == "all"
                                      ? elements
                                      : WholeNumbers{0, most_elements}(setting, sharding_option));
    });
}

std::vector<ShardingRequest> other_settings(const std::string& text, const ShardingRequest& own,
                                            const Workload& workload) {
    if (own.strategy == ShardedStrategy::zero3) {
        std::int64_t elements = 0;
        for (const Gradient& gradient : workload.gradients) {
            elements += gradient.numel;
        }
        return prefetches(text, own, elements);
    }
    const auto blocks = std::ssize(blocks_of(transformed(workload.gradients, &Gradient::name)));
    return text == "auto" ? automatic(own, blocks)
                          : transformed(split_at_commas(text), [&](const std::string& setting) {
                                return typed_setting(setting, own, blocks);
                            });
}

}  // namespace

bool does_the_same(const ShardingRequest& a, const ShardingRequest& b, const Scenario& scenario) {
    const auto replay = [&](const ShardingRequest& request) {
        return sharded_replay(sharded_replay_input(scenario, request, true));
    };
    const ReplayedStep of_a = replay(a);
    const ReplayedStep of_b = replay(b);
    return of_a.program == of_b.program && of_a.moves == of_b.moves;
}

std::vector<ShardingRequest> settings_to_measure(const std::string& text, const Scenario& scenario,
                                                 const Workload& workload) {
    std::vector<ShardingRequest> settings{*scenario.sharding};
    for (const ShardingRequest& other : other_settings(text, *scenario.sharding, workload)) {
        const bool is_there = std::ranges::any_of(settings, [&](const ShardingRequest& known) {
            return does_the_same(known, other, scenario);
        });
        if (!is_there) {
            settings.push_back(other);
        }
    }
    return settings;
}

}  // namespace bucketwise
