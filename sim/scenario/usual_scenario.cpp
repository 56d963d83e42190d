#include "sim/scenario/usual_scenario.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/caveat.h"
#include "sim/base/error.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/workload/device.h"
#include "sim/workload/device_input.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

constexpr std::string_view usual_device = "H100";
constexpr std::int64_t usual_ranks = 8;
constexpr std::int64_t usual_ranks_per_node = 8;

const LinkPreset* preset_of(const NamedParts& named) {
    return looks_like_preset(named.link) ? find_preset(named.link) : nullptr;
}

// As its preset is called.
std::string device_for(const NamedParts& named) {
    if (!named.device.empty()) {
        const Json typed = named.device;
        return read_device({&typed, "--device", ""}).name;
    }
    const LinkPreset* link = preset_of(named);
    return std::string(link == nullptr || link->gpu.empty() ? usual_device : link->gpu);
}

std::int64_t ranks_for(const NamedParts& named) {
    const LinkPreset* link = preset_of(named);
    return named.ranks.value_or(link == nullptr ? usual_ranks : shown_ranks(*link));
}

// The first of what it is usually trained in that the device has a peak for: mixed precision, or,
// of images, what PyTorch does with float32 by itself.
std::string_view arithmetic_for(const std::string& model, const std::string& device) {
    const std::array usual{transformer_shape(model) ? Arithmetic::bfloat16 : Arithmetic::tfloat32,
                           Arithmetic::float16};
    const Device rates = device_preset(device).value();
    const auto* const found = std::ranges::find_if(
        usual, [&](Arithmetic arithmetic) { return rates.peak(arithmetic) > 0; });
    return name_of(found == usual.end() ? Arithmetic::float32 : *found);
}

Json link_for(const std::string& model, const std::string& device, std::int64_t ranks) {
    const LinkPreset* preset = preset_of_gpu(device, ranks);
    if (preset == nullptr) {
        throw InputError(
            model, "",
            fmt::format("--link (no preset holds {} ranks of {}; bucketwise link list names all)",
                        ranks, device),
            "none");
    }
    return preset->name;
}

// A link of nodes needs to know how many ranks one has.
void add_nodes(const FileReader& read_file, Json& document) {
    Json inlined = document;
    inline_link(inlined, document["name"].get<std::string>(), read_file);
    Json& cluster = document["cluster"];
    const Json& link = inlined["cluster"]["link"];
    const bool is_asked = link.is_object() && link.value("algorithm", Json()) == "hierarchical" &&
                          !link.contains("topology") && !cluster.contains("ranks_per_node");
    if (is_asked) {
        cluster["ranks_per_node"] =
            std::min(cluster.value("ranks", usual_ranks), usual_ranks_per_node);
    }
}

// Values of `usual` that no option changed.
std::string assumed_in(const Json& usual, const std::set<std::string>& said, const Json& document) {
    std::string assumed;
    for (const char* pointer : {"/workload/batch", "/workload/sequence_length", "/workload/dtype",
                                "/workload/arithmetic", "/workload/device", "/cluster/ranks",
                                "/cluster/ranks_per_node", "/cluster/link", "/step/optimizer"}) {
        const Json::json_pointer place(pointer);
        const std::string& key = place.back();
        const bool is_said = said.contains(key) || !document.contains(place) ||
                             (usual.contains(place) && usual[place] != document[place]);
        if (!is_said) {
            const Json& value = document[place];
            assumed += fmt::format("{}{} {}", assumed.empty() ? "" : ", ", key,
                                   value.is_string() ? value.get<std::string>() : value.dump());
        }
    }
    return assumed;
}

}  // namespace

Json usual_scenario(const std::string& model, const NamedParts& named) {
    const ModelInput input = typical_input(model);
    const std::string device = device_for(named);
    const std::int64_t ranks = ranks_for(named);
    const bool is_transformer = transformer_shape(model).has_value();
    Json workload{{"model", model}, {"batch", input.batch}, {"dtype", "float32"}};
    if (is_transformer) {
        workload["sequence_length"] = input.sequence_length;
    }
    // A number type that was asked for also rules products; float32 is the assumption anyway.
    if (named.dtype.empty() || named.dtype == "float32") {
        workload["arithmetic"] = arithmetic_for(model, device);
    }
    workload["device"] = device;
    Json cluster{{"ranks", ranks}};
    if (named.link.empty()) {
        cluster["link"] = link_for(model, device, ranks);
    }
    return {{"name", model},
            {"workload", workload},
            {"cluster", cluster},
            {"sync", {{"strategy", "ddp"}, {"pytorch_version", "2.4"}}},
            {"step", {{"optimizer", is_transformer ? "adam" : "sgd_momentum"}}}};
}

void complete_usual(const Json& usual, const std::set<std::string>& said,
                    const FileReader& read_file, Json& document) {
    add_nodes(read_file, document);
    const std::string assumed = assumed_in(usual, said, document);
    if (!assumed.empty()) {
        add_caveat(document, {.text = "nobody said, so what is usual is assumed: " + assumed});
    }
}

}  // namespace bucketwise
