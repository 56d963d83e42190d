#include "sim/link/link_keys.h"

#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "sim/link/network/topology_input.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_segments = 64;

// --- segments ---

const JsonTable<SegmentErrors>& segment_error_keys() {
    using Errors = SegmentErrors;
    static const JsonTable<Errors> table{
        "standard errors of a segment",
        "Standard errors of a fitted segment",
        {{"latency_us", field(&Errors::latency_us, as::number({0, 1e6})), "required",
          "of the latency"},
         {"bandwidth_gb_per_s", field(&Errors::bandwidth_gb_per_s, as::number({0, 1e6})),
          "required", "of the bandwidth"},
         {"correlation", field(&Errors::correlation, as::number({-1, 1})), "required",
          "of both estimates"}}};
    return table;
}

const JsonTable<Segment>& segment_keys() {
    static const JsonTable<Segment> table{
        "segment",
        "Cost of messages up to a size",
        {{"up_to_bytes", field(&Segment::up_to, as::bytes()), "required but in the last",
          "largest message the segment serves, the whole buffer on one rank, rising; the last "
          "segment serves all larger ones"},
         {"latency_us", field(&Segment::latency, as::microseconds()), "required",
          "of each step of the algorithm"},
         {"bandwidth_gb_per_s", field(&Segment::bandwidth, as::gb_per_s()), "required",
          "of what one rank sends"},
         {"standard_errors", field(&Segment::errors, segment_error_keys().type()), "none",
          "of a fitted segment"}}};
    return table;
}

// Limits of `count` entries rise, and the last has none.
void check_limit(const JsonObject& entry, std::size_t i, std::size_t count, Bytes& reached) {
    if (i + 1 == count) {
        use_present(entry, "up_to_bytes", [](const JsonPlace& up_to) {
            up_to.fail("no limit on the last segment, which serves all larger messages");
        });
        return;
    }
    const JsonPlace up_to = entry.at("up_to_bytes");
    const Bytes limit = read_bytes(up_to);
    if (limit <= reached) {
        up_to.fail(fmt::format("more than the segment before ({})", reached.count));
    }
    reached = limit;
}

std::vector<Segment> read_segments(const JsonPlace& place) {
    std::vector<Segment> segments;
    const std::vector<JsonPlace> elements = read_array(place, most_segments);
    Bytes reached{0};
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const JsonObject object = segment_keys().open(elements[i]);
        check_limit(object, i, elements.size(), reached);
        segment_keys().read(object, segments.emplace_back());
    }
    return segments;
}

JsonType<std::vector<Segment>> segments_type() {
    JsonType<std::vector<Segment>> type = as::list(segment_keys().type(), most_segments);
    type.read = read_segments;
    return type;
}

// --- interference ---

JsonType<std::int64_t> slowdown_ppm() {
    const JsonType<double> factor = as::number({1, 100});
    return {
        factor,
        [read = factor.read](const JsonPlace& place) { return std::llround(read(place) * 1e6); },
        [](std::int64_t ppm) { return Json(static_cast<double>(ppm) / 1e6); }};
}

const JsonTable<InterferenceErrors>& interference_error_keys() {
    using Errors = InterferenceErrors;
    const JsonType<double> factor = as::number({0, 100});
    static const JsonTable<Errors> table{
        "standard errors of interference",
        "Standard errors of measured slowdowns",
        {{"compute_slowdown", field(&Errors::compute_slowdown, factor), "required",
          "of the factor on computing"},
         {"communication_slowdown", field(&Errors::communication_slowdown, factor), "required",
          "of the factor on collectives"},
         {"start_delay_us", field(&Errors::start_delay_us, as::number({0, 1e6})), "0",
          "of the delay"}}};
    return table;
}

template <typename Value>
KeyUse<InterferenceSegment> slowdown_field(Value Interference::*member,
                                           const JsonType<Value>& type) {
    return field_in<InterferenceSegment>(
        [member](auto& segment) -> auto& { return segment.slowdown.*member; }, type);
}

KeyUse<InterferenceSegment> slowdown_of(std::int64_t SlowdownsOfComputing::*part) {
    const JsonType<std::int64_t> type = slowdown_ppm();
    KeyUse<InterferenceSegment> use{type};
    use.read = [=](const JsonPlace& place, InterferenceSegment& segment) {
        segment.computing.emplace(segment.computing.value_or(SlowdownsOfComputing{})).*part =
            type.read(place);
    };
    use.write = [=](const InterferenceSegment& segment, bool /*always*/) {
        return segment.computing ? std::optional(type.write(*segment.computing.*part))
                                 : std::nullopt;
    };
    return use;
}

const JsonTable<InterferenceSegment>& interference_keys() {
    using Piece = InterferenceSegment;
    static const JsonTable<Piece> table{
        "interference",
        "Slowdowns while both run, for messages up to a size",
        {{"up_to_bytes", field(&Piece::up_to, as::bytes()), "required in a list but in its last",
          "largest message these factors are for, as segments have"},
         {"ctas", field(&Piece::ctas, as::integer(1, most_thread_blocks)), "none",
          "thread blocks (CTAs) of the collective that these factors are for; in every entry or in "
          "none. The entries of as many are a list by size, the factors linear between the two "
          "nearest numbers and constant beyond them"},
         {"compute_slowdown", slowdown_field(&Interference::compute_slowdown_ppm, slowdown_ppm()),
          "required", "factor by which computing slows while a collective runs"},
         {"communication_slowdown",
          slowdown_field(&Interference::communication_slowdown_ppm, slowdown_ppm()), "required",
          "factor by which a collective slows while computing runs"},
         {"product_slowdown", slowdown_of(&SlowdownsOfComputing::product_ppm), "none",
          "that of matrix products alone. Where it is known how much of backward's time they take "
          "(a model, or operations with PyTorch's names), its mixture with `rest_slowdown` counts "
          "in place of `compute_slowdown`"},
         {"rest_slowdown", slowdown_of(&SlowdownsOfComputing::rest_ppm), "none",
          "that of all operations but matrix products"},
         {"start_delay_us", slowdown_field(&Interference::start_delay, as::microseconds()), "0",
          "what a collective that could start waits for while something computes"},
         {"standard_errors", field(&Piece::errors, interference_error_keys().type()), "none",
          "of the factors"}},
        {needs("product_slowdown", "rest_slowdown"), needs("rest_slowdown", "product_slowdown")}};
    return table;
}

constexpr std::int64_t any_ctas = 0;

std::int64_t read_ctas(const JsonObject& object, const JsonPlace& first) {
    const auto ctas = object.find("ctas");
    if (first.value->contains("ctas") != ctas.has_value()) {
        object.place().fail("ctas in every entry of interference or in none",
                            ctas ? "one with them after one without" : "one without them");
    }
    return ctas ? read_integer(*ctas, 1, most_thread_blocks) : any_ctas;
}

// One object for messages of every size, or a list by size, or such a list for each of several
// numbers of thread blocks, or that there is none.
std::vector<InterferenceSegment> read_interference(const JsonPlace& place) {
    if (place.value->is_string()) {
        if (read_string(place) != "none") {
            place.fail("none, an object or a list of objects");
        }
        return constant_interference({});
    }
    const std::vector<JsonPlace> elements = place.value->is_array()
                                                ? read_array(place, most_interference_segments)
                                                : std::vector<JsonPlace>{place};
    std::map<std::int64_t, std::vector<JsonObject>> by_ctas;
    for (const JsonPlace& element : elements) {
        const JsonObject object = interference_keys().open(element);
        by_ctas[read_ctas(object, elements.front())].push_back(object);
    }
    std::vector<InterferenceSegment> interference;
    for (const auto& [ctas, group] : by_ctas) {
        Bytes reached{0};
        for (std::size_t i = 0; i < group.size(); ++i) {
            check_limit(group[i], i, group.size(), reached);
            interference_keys().read(group[i], interference.emplace_back());
        }
    }
    return interference;
}

JsonType<std::vector<InterferenceSegment>> interference_type() {
    const auto list = as::list(interference_keys().type(), most_interference_segments);
    Json listed = list.schema;
    listed["anyOf"] = {{{"items", {{"required", {"ctas"}}}}},
                       {{"items", {{"not", {{"required", {"ctas"}}}}}}}};
    return {{{{"oneOf",
               {reference_to(interference_keys().text()), {{"const", "none"}}, std::move(listed)}}},
             "object, list or `none`",
             list.objects},
            read_interference,
            [write_list = list.write](const std::vector<InterferenceSegment>& interference) {
                if (interference == constant_interference({})) {
                    return Json("none");
                }
                return interference.size() == 1 ? interference_keys().write(interference.front())
                                                : write_list(interference);
            }};
}

// --- the link ---

const JsonTable<Provenance>& provenance_keys() {
    using From = Provenance;
    static const JsonTable<From> table{
        "provenance",
        "Where the numbers are from; shown, never computed with",
        {{"backend", field(&From::backend, as::text()), "none",
          "for example nccl or gloo. On `nccl` interference is assumed where there is none"},
         {"ranks", field(&From::ranks, as::integer(1, 1'000'000)), "none",
          "of the measurement. A note says when a scenario has others"},
         {"smallest_message_bytes", field(&From::smallest_message, as::bytes()), "none",
          "smallest message measured. A note says when an all-reduce lies beyond the two"},
         {"largest_message_bytes", field(&From::largest_message, as::bytes()), "none",
          "largest message measured"},
         {"hardware", field(&From::hardware, as::text()), "none", "what it ran on"},
         {"versions", field(&From::versions, as::text()), "none", "of the software measured"},
         {"date", field(&From::date, as::text()), "none", "day the file was made"},
         {"samples", field(&From::samples, as::integer(0, 1'000'000'000'000)), "none",
          "measured values behind the numbers"},
         {"source", field(&From::source, as::text()), "none",
          "the file, table or command behind the numbers"}}};
    return table;
}

// A tier may be any link of segments.
KeyUse<LinkParameters> tier(std::size_t index) {
    KeyUse<LinkParameters> use{
        JsonDescription{{{"oneOf", {as::text().schema, {{"$ref", "#"}}}},
                         {"not",
                          {{"type", "object"},
                           {"required", {"algorithm"}},
                           {"properties", {{"algorithm", {{"const", "hierarchical"}}}}}}}},
                        "path, preset or object"}};
    use.write = [index](const LinkParameters& link, bool /*always*/) {
        return index < link.tiers.size() ? std::optional(link_json(link.tiers[index]))
                                         : std::nullopt;
    };
    return use;
}

// In the place of all that tiers have.
KeyUse<LinkParameters> interference_of_link() {
    KeyUse<LinkParameters> use = field(&LinkParameters::interference, interference_type());
    use.read = [](const JsonPlace& place, LinkParameters& link) {
        link.all_gather.interference.clear();
        link.reduce_scatter.interference.clear();
        link.interference = read_interference(place);
    };
    return use;
}

std::vector<JsonKey<LinkParameters>> cost_rows() {
    using Link = LinkParameters;
    return {
        {"topology", field(&Link::topology, topology_type()), "none",
         "what connects the ranks, instead of segments or tiers: [below](#topology)"},
        {"segments", field(&Link::segments, segments_type()), "required without a topology",
         "cost by size of the message; not for `hierarchical`"},
        {"intra", tier(0), "required for `hierarchical` without a topology",
         "the link within a node; a path is relative to this file's folder"},
        {"inter", tier(1), "required for `hierarchical` without a topology",
         "the link between nodes, per rank"},
        {"launch_us", field(&Link::launch, as::microseconds()), "0",
         "part of each collective on the communication stream, once, whatever the number of "
         "ranks"},
        {"meeting_us", field(&Link::meeting, as::microseconds()), "0",
         "once besides where there is more than one rank, for example until all have come; in the "
         "tiers of `hierarchical`"},
        {"message_us", field(&Link::message, as::microseconds()), "0",
         "what one message takes of its sender, who can send no other meanwhile; in the tiers of "
         "`hierarchical`. Latency is what all messages of a step share. Where every step sends one "
         "message, as in a ring, only their sum counts"},
        {"processors", field(&Link::processors, as::integer(1, most_processors)),
         "each rank has its own",
         "of the one machine on which all ranks run and send by copying (Gloo on loopback). Steps, "
         "messages and bytes are then work of these, and with more ranks than processors take "
         "ranks ÷ processors times as long; in the tiers of `hierarchical`"},
        {"host_issue_us", field(&Link::host_issue, as::microseconds()), "0",
         "host time to issue one collective"},
        {"host_wait_us", field(&Link::host_wait, as::microseconds()), "0",
         "host time to wait for one. On a GPU waiting only makes the stream wait, and the host "
         "goes on"}};
}

std::vector<JsonKey<LinkParameters>> other_rows() {
    using Link = LinkParameters;
    return {
        {"interference", interference_of_link(),
         "on GPUs [assumed](../docs/decisions/overlap_costs.md), else none",
         "how much computing and communicating slow each other: for messages of every size, or a "
         "list by size"},
        {"all_gather", field(&Link::all_gather, own_number_keys().type()), "none",
         "what these collectives cost and disturb where that was measured; else the link's own "
         "numbers serve, with their steps and bytes"},
        {"reduce_scatter", field(&Link::reduce_scatter, own_number_keys().type()), "none",
         "that of reduce-scatters"},
        {"ctas", field(&Link::ctas, as::integer(1, most_thread_blocks)), "none",
         "thread blocks (CTAs) of one collective; required where entries of `interference` have "
         "`ctas`, and of effect only there, where interference is assumed, and with the algorithm "
         "`nccl`, whose NCCL_MAX_CTAS it is: `--set /cluster/link/ctas=8`. A note says when it "
         "lies "
         "beyond what was measured"},
        {"copy_gb_per_s", field(&Link::copy_bandwidth, as::gb_per_s()), "the device's",
         "payload copied into or out of a bucket"},
        {"provenance", field(&Link::provenance, provenance_keys().type()), "none",
         "where the numbers are from; shown, never computed with"},
        {"caveats", field(&Link::caveats, as::caveats()), "none",
         "known weaknesses of it: [caveats](#caveats)"}};
}

// The keys that go with a way to say the cost, and where ctas is required.
std::vector<Json> link_conditions() {
    const Json disturbs_only = Json::parse(
        R"({"required": ["interference"], "properties": {"segments": false, "launch_us": false}})");
    Json costs = Json::parse(R"({
        "if": {"required": ["topology"]},
        "then": {},
        "else": {
            "if": {"required": ["algorithm"],
                   "properties": {"algorithm": {"const": "hierarchical"}}},
            "then": {"required": ["intra", "inter"],
                     "properties": {"segments": false, "meeting_us": false, "message_us": false,
                                    "processors": false}},
            "else": {"required": ["segments"],
                     "properties": {"intra": false, "inter": false,
                                    "all_gather": {"required": ["segments"]},
                                    "reduce_scatter": {"required": ["segments"]}}}}})");
    Json by_ctas = Json::parse(R"({
        "type": "object", "required": ["interference"],
        "properties": {"interference": {"anyOf": [
            {"type": "object", "required": ["ctas"]},
            {"type": "array", "contains": {"type": "object", "required": ["ctas"]}}]}}})");
    Json any = Json::array({by_ctas});
    for (const char* kind : {"all_gather", "reduce_scatter"}) {
        costs["then"]["properties"][kind] = disturbs_only;
        costs["else"]["then"]["properties"][kind] = disturbs_only;
        any.push_back({{"required", {kind}}, {"properties", {{kind, by_ctas}}}});
    }
    return {std::move(costs),
            {{"if", {{"anyOf", std::move(any)}}}, {"then", {{"required", {"ctas"}}}}},
            Json::parse(R"({
        "if": {"required": ["algorithm"], "properties": {"algorithm": {"const": "nccl"}}},
        "then": {"required": ["topology"],
                 "properties": {"topology": {"required": ["nccl"],
                                             "properties": {"ranks": false, "links": false,
                                                            "slow_ranks": false,
                                                            "background": false}}}}})")};
}

}  // namespace

const JsonTable<OwnNumbers>& own_number_keys() {
    static const JsonTable<OwnNumbers> table{
        "all_gather and reduce_scatter",
        "Numbers of one kind of collectives",
        {{"launch_us", field(&OwnNumbers::launch, as::microseconds()), "0",
          "in place of the link's `launch_us`; only with segments"},
         {"segments", field(&OwnNumbers::segments, segments_type()),
          "required in a link of segments",
          "in place of the link's, with the kind's steps and bytes; not beside tiers or a "
          "topology, which say the cost. `meeting_us`, `message_us` and `processors` stay the "
          "link's"},
         {"interference", field(&OwnNumbers::interference, interference_type()),
          "required beside tiers or a topology", "in place of the link's own"}}};
    return table;
}

const JsonTable<LinkParameters>& link_keys() {
    using Link = LinkParameters;
    static const JsonTable<Link> table{
        "link",
        "The cost of a collective: launch + meeting + steps × latency + messages × message + bytes "
        "on the wire ÷ bandwidth. Keys: scenarios/README.md",
        joined(joined({{"name", field(&Link::name, as::text()), "required", "shown in reports"},
                       {"algorithm", field(&Link::algorithm, as::one_of<Algorithm>()), "required",
                        "see below"}},
                      cost_rows()),
               other_rows()),
        {exclusive("topology", "segments"), exclusive("topology", "intra"),
         exclusive("topology", "inter"), exclusive("topology", "message_us"),
         exclusive("topology", "processors")},
        link_conditions()};
    return table;
}

const ObjectText& link_text() {
    return link_keys().text();
}

Json link_json(const LinkParameters& link) {
    return link_keys().write(link);
}

}  // namespace bucketwise
