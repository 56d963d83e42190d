#include "cli/sharded_settings.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cli/shell/option_values.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/sharding/modules.h"
#include "sim/sharding/shard_plan.h"

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
    return requests;
}

ShardingRequest typed_setting(const std::string& text, const ShardingRequest& own,
                              std::int64_t blocks) {
    constexpr std::string_view suffix = "/keep";
    const bool keeps = text.ends_with(suffix);
    const std::string layers = keeps ? text.substr(0, text.size() - suffix.size()) : text;
    ShardingRequest request = with_layers(
        own, layers == "all" ? blocks : whole_number(layers, sharding_option, {0, most_layers}));
    request.reshard_after_forward = !keeps;
    request.reshard_ranks.reset();
    return request;
}

std::vector<std::string> between_commas(const std::string& text) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        parts.push_back(text.substr(begin, end - begin));
    }
    return parts;
}

// Whether ranks do the same with both.
bool does_the_same(ShardingRequest a, const ShardingRequest& b, const StepInput& input) {
    const bool same_groups = make_shard_plan(input.workload, a, input.group.ranks) ==
                             make_shard_plan(input.workload, b, input.group.ranks);
    a.groups = b.groups;
    a.layers_per_group = b.layers_per_group;
    return same_groups && a == b;
}

}  // namespace

std::vector<ShardingRequest> settings_to_measure(const std::string& text, const Scenario& scenario,
                                                 const StepInput& input) {
    const ShardingRequest& own = *scenario.sharding;
    const auto blocks =
        std::ssize(blocks_of(transformed(input.workload.gradients, &Gradient::name)));
    const std::vector<ShardingRequest> others =
        text == "auto" ? automatic(own, blocks)
                       : transformed(between_commas(text), [&](const std::string& setting) {
                             return typed_setting(setting, own, blocks);
                         });
    std::vector<ShardingRequest> settings{own};
    for (const ShardingRequest& other : others) {
        const bool is_there = std::ranges::any_of(settings, [&](const ShardingRequest& known) {
            return does_the_same(known, other, input);
        });
        if (!is_there) {
            settings.push_back(other);
        }
    }
    return settings;
}

}  // namespace bucketwise
