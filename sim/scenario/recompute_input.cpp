#include "sim/scenario/recompute_input.h"

#include <string>
#include <utility>
#include <vector>

namespace bucketwise {
namespace {

const JsonTable<Recompute>& recompute_keys() {
    constexpr std::int64_t most_blocks = 10'000;
    static const JsonTable<Recompute> table{
        "activation_checkpointing",
        "Which blocks backward computes again",
        {{"every", field(&Recompute::every, as::integer(1, most_blocks)), "1",
          "of the blocks (`layers.0`, `layers.1`, ...) each so many-th, as torchtitan's selective "
          "mode with a number"},
         {"blocks", field(&Recompute::blocks, as::integer(1, most_blocks)), "all",
          "only so many blocks, the first ones, as Megatron's `--recompute-method block`"},
         {"keeps", field(&Recompute::keeps, as::one_of<CheckpointKeeps>()), "`inputs`",
          "what forward keeps of such a block: `inputs`, its own alone; `operators`, results of "
          "attention in one kernel and of every other product of linear layers as well"},
         {"reentrant", field(&Recompute::reentrant, as::boolean()), "false",
          "the whole block runs again, as with `use_reentrant=True`; else recomputing ends with "
          "the last saved tensor"}}};
    return table;
}

// Kinds with a name, and what an object may say.
constexpr std::string_view all_kinds =
    "a kind (none, full, operators) or an object with every, blocks, keeps and reentrant";
constexpr std::string_view kinds_of_blocks =
    "a kind (none, full) or an object with every, blocks and reentrant";

std::optional<Recompute> read_recompute(const JsonPlace& place, std::string_view expected) {
    if (place.value->is_object()) {
        return recompute_keys().read(place);
    }
    const std::string kind = place.value->is_string() ? place.value->get<std::string>() : "";
    if (kind == "full") {
        return Recompute{};
    }
    if (kind == "operators") {
        return Recompute{.keeps = CheckpointKeeps::operators};
    }
    if (kind != "none") {
        place.fail(std::string(expected));
    }
    return std::nullopt;
}

Json recompute_json(const std::optional<Recompute>& recompute) {
    return !recompute                  ? Json("none")
           : *recompute == Recompute{} ? Json("full")
           : *recompute == Recompute{.keeps = CheckpointKeeps::operators}
               ? Json("operators")
               : recompute_keys().write(*recompute);
}

JsonDescription description_of(const std::vector<std::string_view>& names, Json object) {
    std::string called;
    for (const std::string_view name : names) {
        called += (called.empty() ? "`" : ", `") + std::string(name) + "`";
    }
    return {{{"oneOf", {as::names_schema(names), std::move(object)}}},
            called + " or object",
            {&recompute_keys().text()}};
}

}  // namespace

JsonType<std::optional<Recompute>> recompute_type() {
    const auto read = [](const JsonPlace& place) { return read_recompute(place, all_kinds); };
    return {description_of({"none", "full", "operators"}, reference_to(recompute_keys().text())),
            read, recompute_json};
}

JsonType<std::optional<Recompute>> block_recompute_type() {
    Json whole = reference_to(recompute_keys().text());
    whole["not"] = {{"required", {"keeps"}},
                    {"properties", {{"keeps", {{"const", name_of(CheckpointKeeps::operators)}}}}}};
    const auto read = [](const JsonPlace& place) {
        const std::optional<Recompute> recompute = read_recompute(place, kinds_of_blocks);
        if (recompute && recompute->keeps == CheckpointKeeps::operators) {
            place.fail(
                "whole blocks, as measured times do not tell which operators a block has: "
                "capture a step that keeps some of them",
                place.value->dump());
        }
        return recompute;
    };
    return {description_of({"none", "full"}, std::move(whole)), read, recompute_json};
}

void refuse_recompute_without_blocks(const JsonPlace& place) {
    place.fail("a model with repeated blocks, whose parameters' names have a number",
               place.value->dump());
}

}  // namespace bucketwise
