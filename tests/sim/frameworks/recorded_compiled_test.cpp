// torch.compile's results for small models under DistributedDataParallel (kind "compile" of
// tests/frameworks/record_pytorch.py): the pieces of the graph, their order of gradients, the
// buckets, and the moments at which these go out.
#include <map>
#include <set>

#include "sim/plan/graph_pieces.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"
#include "tests/sim/frameworks/recorded_pytorch.h"

namespace bucketwise {
namespace {

// An operation of backward for each of a graph's that takes parameters.
StepInput compiled_input(const Json& model, const Json& graph) {
    StepInput input = recorded_gradients(model);
    Workload& workload = input.workload;
    std::map<std::int32_t, std::size_t> first_use;
    for (std::size_t i = graph.size(); i-- > 0;) {
        for (const Json& parameter : graph[i]) {
            first_use[parameter.get<std::int32_t>()] = i;
        }
    }
    for (std::size_t i = graph.size(); i-- > 0;) {
        TimedOperation operation{.name = "backward", .device = std::chrono::milliseconds{1}};
        for (const Json& parameter : graph[i]) {
            const auto index = parameter.get<std::int32_t>();
            if (first_use[index] == i) {
                workload.readiness.push_back(index);
                ++operation.ready_count;
            } else {
                operation.used_before += workload.gradients[static_cast<std::size_t>(index)].size();
            }
        }
        workload.backward.push_back(operation);
    }
    return input;
}

// Whether each piece is handed a single tensor by the one before, and uses it first.
bool is_chain(const Json& edges) {
    for (const Json& edge : edges) {
        for (std::size_t i = 0; i < edge.size(); ++i) {
            if (edge[i].is_string() && i > 0) {
                return false;
            }
        }
    }
    return true;
}

std::vector<Bytes> sizes_of(const Json& buckets, const StepInput& input) {
    std::vector<Bytes> sizes;
    for (const Json& bucket : buckets) {
        Bytes& size = sizes.emplace_back();
        for (const Json& gradient : bucket) {
            size += input.workload.gradients[gradient.get<std::size_t>()].size();
        }
    }
    return sizes;
}

// The recorded events without the marks of pieces, which inductor does not leave.
Json without_pieces(const Json& events) {
    Json rest = Json::array();
    for (const Json& event : events) {
        if (event != "b") {
            rest.push_back(event);
        }
    }
    return rest;
}

TEST_CASE("Under torch.compile pieces, order, buckets and launches are those recorded") {
    const Recording recording{"pytorch.json"};
    const Json file = recorded_pytorch(recording);
    int checked = 0;
    int chains = 0;
    struct {
        int cases = 0;
        int equal = 0;
        int equal_sizes = 0;
    } branched;
    int refused = 0;
    for (const Json& one : file["cases"]) {
        if (one["kind"] != "compile" || one.value("optimize_ddp", true) == false) {
            continue;
        }
        auto request = recorded_request(one, recording);
        REQUIRE(request);
        request->compiled = true;
        request->batched_grad_copy = false;  // whose copies do not tell when gradients are ready
        INFO(one.dump());
        if (one.contains("error")) {
            CHECK(settings_for(*request).policy.pieces->is_refused());
            ++refused;
            continue;
        }
        if (one["graphs"].empty() || one["graphs"][0].empty() || has_unused(one)) {
            continue;  // nothing was compiled, or not all parameters are used
        }
        const StepInput input =
            compiled_input(file["models"][one["model"].get<std::string>()], one["graphs"][0]);
        const SyncSettings sync = settings_for(*request);
        REQUIRE(sync.policy.pieces);
        CHECK(one["optimizer_caps"][0] ==
              Json{sync.policy.pieces->first.count, sync.policy.pieces->cap.count});
        const BucketPlan plan = make_plan(input.workload, sync.policy);

        // Pieces, from the last of forward on.
        std::vector<std::set<std::int32_t>> expected;
        for (const Json& piece : one["pieces"][0]) {
            expected.insert(expected.begin(), piece[1].get<std::set<std::int32_t>>());
        }
        // A shared parameter's gradient is ready with the last piece that has it.
        for (std::size_t i = 0; i < expected.size(); ++i) {
            for (std::size_t later = i + 1; later < expected.size(); ++later) {
                for (const std::int32_t gradient : expected[later]) {
                    expected[i].erase(gradient);
                }
            }
        }
        std::vector<std::set<std::int32_t>> simulated;
        std::size_t next = 0;
        for (const std::int32_t count : plan.readiness->counts) {
            const auto begin = plan.readiness->order.begin() + static_cast<std::ptrdiff_t>(next);
            if (count > 0) {
                simulated.emplace_back(begin, begin + count);
            }
            next += static_cast<std::size_t>(count);
        }
        CHECK(plan.readiness->pieces == std::ssize(expected));
        std::erase_if(expected, [](const auto& piece) { return piece.empty(); });
        CHECK(simulated == expected);
        ++checked;

        Json buckets = Json::array();
        for (const Bucket& bucket : plan.buckets) {
            buckets.push_back(bucket.gradients);
        }
        const Json& recorded = one["buckets"].back();
        INFO(buckets.dump());
        if (!is_chain(one["edges"])) {
            ++branched.cases;
            branched.equal += buckets == recorded ? 1 : 0;
            branched.equal_sizes += sizes_of(recorded, input) == sizes_of(buckets, input) ? 1 : 0;
            continue;
        }
        // A graph that broke; or a whole one, where Python reads parameters in another order than
        // nn.MultiheadAttention uses them.
        if (one["graphs"].size() > 1 || one["model"] == "encoder") {
            continue;
        }
        CHECK(buckets == recorded);
        Json events = Json::array();
        const Program program = build_program(input, sync, plan);
        for (const Instruction& instruction : program.instructions) {
            if (instruction.copy.route == CopyRoute::gradient_to_bucket) {
                events.push_back(instruction.subject);
            } else if (instruction.kind == InstructionKind::launch &&
                       program.collectives[static_cast<std::size_t>(instruction.subject)]
                           .has_bucket()) {
                events.push_back("l" + std::to_string(instruction.subject));
            }
        }
        CHECK(events == without_pieces(one["events"].back()));
        ++chains;
    }
    CHECK(refused == 13);
    CHECK(checked == 68);
    CHECK(chains == 49);
    // Where pieces hand several tensors to one another, gradients of a piece can come in another
    // order, which can move one into the bucket before or after.
    CHECK(branched.cases == 17);
    CHECK(branched.equal == 8);
    CHECK(branched.equal_sizes == 13);
}

}  // namespace
}  // namespace bucketwise
