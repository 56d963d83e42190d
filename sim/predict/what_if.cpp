#include "sim/predict/what_if.h"

#include <algorithm>
#include <array>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/base/json_input.h"
#include "sim/engine/step_loop.h"
#include "sim/link/link_input.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_points = 1'000'000'000'000'000;

// Whether a pointer is equal to the other or within it.
bool overlap(const std::string& a, const std::string& b) {
    const std::string& shorter = a.size() < b.size() ? a : b;
    const std::string& longer = a.size() < b.size() ? b : a;
    return longer.compare(0, shorter.size(), shorter) == 0 &&
           (longer.size() == shorter.size() || longer[shorter.size()] == '/');
}

bool is_within(std::string_view pointer, std::string_view section) {
    const std::string_view rest = pointer.substr(std::min<std::size_t>(1, pointer.size()));
    return rest.starts_with(section) &&
           (rest.size() == section.size() || rest[section.size()] == '/');
}

std::int64_t read_link_value(const LinkCost& cost, const JsonPlace& place) {
    return cost.kind == LinkCost::Kind::bandwidth ? read_bandwidth_gb_per_s(place).count
                                                  : read_duration_us(place).count();
}

void set_link_cost(LinkParameters& whole, const LinkCost& cost, std::int64_t value) {
    using Kind = LinkCost::Kind;
    LinkParameters& link = cost.tier ? whole.tiers[*cost.tier] : whole;
    if (cost.kind == Kind::bandwidth) {
        link.segments[cost.segment].bandwidth = {value};
        return;
    }
    (cost.kind == Kind::latency   ? link.segments[cost.segment].latency
     : cost.kind == Kind::launch  ? link.launch
     : cost.kind == Kind::meeting ? link.meeting
                                  : link.message) = Duration{value};
}

bool names_link_file(const Json& document) {
    const Json::json_pointer place("/cluster/link");
    return document.is_object() && document.contains(place) && document[place].is_string();
}

}  // namespace

std::optional<LinkCost> link_cost_at(const std::string& pointer) {
    static const std::regex form(
        "/cluster/link(?:/(intra|inter))?/"
        "(?:segments/([0-9]{1,9})/)?(latency|bandwidth|launch|meeting|message)_(us|gb_per_s)");
    std::smatch parts;
    if (!std::regex_match(pointer, parts, form)) {
        return std::nullopt;
    }
    using Kind = LinkCost::Kind;
    constexpr std::array<std::string_view, 5> kinds{"latency", "bandwidth", "launch", "meeting",
                                                    "message"};
    LinkCost cost;
    cost.kind = static_cast<Kind>(std::ranges::find(kinds, parts[3].str()) - kinds.begin());
    const bool in_segment = cost.kind == Kind::latency || cost.kind == Kind::bandwidth;
    if (in_segment != parts[2].matched ||
        (cost.kind == Kind::bandwidth) != (parts[4].str() == "gb_per_s")) {
        return std::nullopt;
    }
    if (parts[1].matched) {
        cost.tier = parts[1].str() == "intra" ? 0 : 1;
    }
    cost.segment = in_segment ? std::stoul(parts[2].str()) : 0;
    return cost;
}

Grid::Grid(std::vector<VariedKey> keys) : keys_(std::move(keys)) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        const VariedKey& key = keys_[i];
        for (std::size_t k = 0; k < i; ++k) {
            if (overlap(keys_[k].pointer, key.pointer)) {
                throw InputError("--vary", key.pointer, "keys of which none is within another",
                                 keys_[k].pointer + " besides");
            }
        }
        if (key.values.empty()) {
            throw InputError("--vary", key.pointer, "a value", "none");
        }
        if (std::ssize(key.values) > most_points / points_) {
            throw InputError("--vary", key.pointer, "at most 10^15 points in all", "more");
        }
        points_ *= std::ssize(key.values);
    }
}

void Grid::locate(std::int64_t point, std::vector<std::size_t>& position) const {
    invariant(point >= 0 && point < points_, "the point lies in the grid");
    position.resize(keys_.size());
    for (std::size_t i = keys_.size(); i-- > 0;) {
        const std::int64_t values = std::ssize(keys_[i].values);
        position[i] = static_cast<std::size_t>(point % values);
        point /= values;
    }
}

std::string Grid::text_of(std::int64_t point) const {
    std::vector<std::size_t> position;
    locate(point, position);
    std::string text;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        text += fmt::format(
            "{}{}={}", i == 0 ? "" : ", ", keys_[i].pointer,
            keys_[i].values[position[i]].dump(-1, ' ', true, Json::error_handler_t::replace));
    }
    return text;
}

PlannedStep::PlannedStep(const StepInput& input, const SyncRequest& request)
    : PlannedStep(input, PlannedSetting(input, settings_for(request, input)).parts(input)) {
    row_.cap = cap_of(request);
    if (row_.cap.is_default() && framework_of(request.strategy)) {
        const PlanPolicy policy = settings_for(request, input).policy;
        row_.cap = policy.cap_bytes_of_limit * policy.limits.cap;
    }
    row_.buckets = std::ranges::count_if(closing_.collectives,
                                         [](const Collective& c) { return c.has_bucket(); });
    // Messages of statistics, and parts of a sharded optimizer, do; so do frameworks' rules.
    depends_on_ranks_ = request.batch_norm != BatchNormSync::local ||
                        request.sharded_optimizer.has_value() ||
                        framework_of(request.strategy).has_value();
}

PlannedStep::PlannedStep(const Scenario& scenario, const StepInput& input,
                         const ShardingRequest& request)
    : PlannedStep(input, PlannedSetting(input, request).parts(input)) {
    const ShardPlan plan = make_shard_plan(input.workload, request, input.group.ranks);
    row_.sharding = request;
    row_.buckets = std::ssize(plan.groups);
    row_.memory = memory_need(scenario, sharded_memory({input, request}, plan)).most();
}

PlannedStep::PlannedStep(const StepInput& input, StepParts parts)
    : before_(std::move(parts.before)),
      closing_(std::move(parts.closing)),
      copies_(input.copy_bandwidth, input.copy_fixed),
      host_(input.link.host_issue, input.link.host_wait),
      ranks_(input.group.ranks) {
    const Program free = with_free_communication(closing_);
    closing_seconds_ = largest_slowdown(before_.classes()) * longest_possible_seconds(free);
    check_length();
    const StepBeforeClosing before_if_free = before_.changed(with_free_communication);
    if_free_ = StepToClose(before_if_free).step_closed_by(free);
}

bool PlannedStep::fits(const StepInput& input) const {
    return std::pair(input.copy_bandwidth, input.copy_fixed) == copies_ &&
           std::pair(input.link.host_issue, input.link.host_wait) == host_ &&
           input.classes == before_.classes() &&
           (input.group.ranks == ranks_ || !depends_on_ranks_);
}

void PlannedStep::set_costs(const StepInput& input) {
    before_.set_costs(input);
    set_collective_costs(closing_, input);
    check_length();
}

void PlannedStep::check_length() const {
    double seconds = before_.longest_possible_seconds();
    if (disturbs(closing_)) {
        seconds += largest_slowdown(before_.classes()) * longest_possible_seconds(closing_);
    } else {
        seconds += closing_seconds_ + std::chrono::duration<double>(time_on_wire(closing_)).count();
    }
    bucketwise::check_length(seconds);
}

WhatIf PlannedStep::simulate() const {
    WhatIf result = row_;
    result.times = StepToClose(before_).settled(closing_);
    result.exposed = result.times.step() - if_free_;
    return result;
}

WhatIfs::WhatIfs(Json document, std::string file, FileReader read_file, const Grid& grid,
                 const CapChoice& cap)
    : document_(std::move(document)),
      file_(std::move(file)),
      read_file_(std::move(read_file)),
      grid_(grid),
      cap_(cap) {
    for (const VariedKey& key : grid.keys()) {
        link_costs_.push_back(link_cost_at(key.pointer));
        link_values_.emplace_back();
        if (!link_costs_.back()) {
            continue;
        }
        for (const Json& value : key.values) {
            link_values_.back().push_back(
                read_link_value(*link_costs_.back(), {&value, file_, key.pointer}));
        }
    }
}

template <typename Act>
auto WhatIfs::named(std::int64_t point, const Act& act) {
    try {
        return act();
    } catch (const InputError& error) {
        position_.clear();  // an unknown state
        throw InputError(error.file(), error.pointer(), error.expected(),
                         grid_.keys().empty() ? error.got()
                                              : fmt::format("{} (point {}: {})", error.got(), point,
                                                            grid_.text_of(point)));
    }
}

const Scenario& WhatIfs::read(std::int64_t point) {
    named(point, [&] { move_to(point); });
    return scenario_;
}

WhatIf WhatIfs::evaluate(std::int64_t point) {
    return named(point, [&] {
        move_to(point);
        return evaluate_here();
    });
}

void WhatIfs::move_to(std::int64_t point) {
    grid_.locate(point, next_position_);
    bool reads = position_.empty();
    for (std::size_t i = 0; i < next_position_.size() && !reads; ++i) {
        reads = !link_costs_[i] && next_position_[i] != position_[i];
    }
    if (reads || grid_.keys().empty()) {
        read_document(next_position_);
        return;
    }
    for (std::size_t i = 0; i < next_position_.size(); ++i) {
        if (next_position_[i] != position_[i]) {
            const std::int64_t value = link_values_[i][next_position_[i]];
            set_link_cost(scenario_.link, *link_costs_[i], value);
            set_link_cost(input_.link, *link_costs_[i], value);
        }
    }
    // They follow from the link's costs.
    if (input_.replicas.group.ranks > 1) {
        input_ = sharded_input(scenario_, std::move(input_.workload)).step;
    } else if (input_.link.assumes_interference) {
        set_cluster(scenario_, input_);
    }
    if (plan_ && next_position_ != position_) {
        plan_->set_costs(input_);
    }
    position_ = next_position_;
}

void WhatIfs::read_document(const std::vector<std::size_t>& position) {
    const ScenarioSections changed = changed_sections(position);
    const bool first = position_.empty();
    for (std::size_t i = 0; i < position.size(); ++i) {
        const VariedKey& key = grid_.keys()[i];
        if (key.pointer.rfind("/cluster/link/", 0) == 0 && names_link_file(document_)) {
            inline_link(document_, file_, read_file_);
        }
        set_at(document_, key.pointer, key.values[position[i]], "--vary");
    }
    if (first) {
        scenario_ = parse_scenario(document_, file_, read_file_, StrategyKinds::all);
        make_input();
    } else {
        const BatchNormSync batch_norm = scenario_.sync.batch_norm;
        const bool shards = scenario_.sharding.has_value();
        const Strategy strategy = scenario_.sync.strategy;
        const bool cuda_graph = scenario_.step.cuda_graph;
        const JointComputing joint = joint_computing(scenario_);
        reread_scenario(document_, file_, read_file_, changed, scenario_, StrategyKinds::all);
        if (changed.contains(ScenarioSection::workload) ||
            scenario_.sync.batch_norm != batch_norm || joint_computing(scenario_) != joint ||
            scenario_.sharding.has_value() != shards || scenario_.sync.strategy != strategy ||
            scenario_.step.cuda_graph != cuda_graph) {
            make_input();
        } else {
            set_input(changed);
        }
    }
    position_ = position;
}

ScenarioSections WhatIfs::changed_sections(const std::vector<std::size_t>& position) const {
    ScenarioSections changed;
    for (std::size_t i = 0; i < position_.size(); ++i) {
        if (position[i] == position_[i]) {
            continue;
        }
        const std::string& pointer = grid_.keys()[i].pointer;
        for (const ScenarioSection section : every<ScenarioSection>) {
            if (is_within(pointer, name_of(section))) {
                changed.insert(section);
            }
        }
    }
    return changed;
}

void WhatIfs::make_input() {
    input_ = scenario_.sharding ? sharded_input(scenario_).step : step_input(scenario_);
    plan_.reset();
}

void WhatIfs::set_input(const ScenarioSections& changed) {
    const bool changes_step = changed.contains(ScenarioSection::sync) ||
                              changed.contains(ScenarioSection::step) ||
                              changed.contains(ScenarioSection::variation);
    if (scenario_.sharding) {
        input_ = sharded_input(scenario_, std::move(input_.workload)).step;
    } else if (changes_step && is_deepspeed(use_of(scenario_.sync))) {
        input_ = step_input(scenario_);  // it holds gradients in another dtype
    } else if (changes_step || scenario_.sync.sharded_optimizer) {
        input_ = step_input(scenario_, std::move(input_.workload));
    } else {
        set_cluster(scenario_, input_);
    }
    if (plan_ && !changes_step && plan_->fits(input_)) {
        plan_->set_costs(input_);
    } else {
        plan_.reset();
    }
}

WhatIf WhatIfs::evaluate_here() {
    const SyncRequest& request = scenario_.sync;
    const auto quietly = [](double) {};
    if (cap_.best) {
        const Prediction prediction =
            scenario_.sharding ? predict_sharded(scenario_, {input_, *scenario_.sharding}, quietly)
                               : predict(input_, request, {}, quietly);
        const Evaluation& best = prediction.chosen();
        WhatIf row{.cap = best.cap,
                   .buckets = std::ssize(best.bucket_bytes),
                   .times = best.times,
                   .exposed = best.exposed,
                   .default_step = prediction.default_cap.times.step()};
        if (best.sharded) {
            row.buckets = static_cast<std::int64_t>(best.sharded->groups);
            row.sharding = best.sharded->request;
            row.memory = best.peak();
        }
        return row;
    }
    const auto planned = [&](const Scenario& scenario, const StepInput& input) {
        return scenario.sharding
                   ? PlannedStep(scenario, input, *scenario.sharding)
                   : PlannedStep(input,
                                 cap_.cap ? with_cap(without_list(request), *cap_.cap) : request);
    };
    if (!plan_) {
        plan_.emplace(planned(scenario_, input_));
    }
    WhatIf row = plan_->simulate();
    if (cap_.range) {
        row.range = step_range(scenario_, input_, row.times.step(),
                               [&](const Scenario& there, const StepInput& input) {
                                   return planned(there, input).simulate().times.step();
                               });
    }
    return row;
}

}  // namespace bucketwise
