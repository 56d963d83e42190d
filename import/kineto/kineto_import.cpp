#include "import/kineto/kineto_import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/kineto/bucket_caps.h"
#include "import/kineto/trace.h"
#include "sim/base/dtype.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/predict/prediction.h"
#include "sim/workload/workload.h"

namespace bucketwise {
namespace {

double rounded_us(Duration time) {
    return std::round(to_us(time) * 1e3) / 1e3;
}
double rounded_ms(Duration time) {
    return std::round(to_ms(time) * 1e6) / 1e6;
}

std::optional<DType> dtype_of(const std::string& name) {
    static const std::map<std::string, DType, std::less<>> dtypes{{"Float", DType::float32},
                                                                  {"Half", DType::float16},
                                                                  {"BFloat16", DType::bfloat16},
                                                                  {"Double", DType::float64}};
    const auto found = dtypes.find(name);
    return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

std::size_t gradients_of(const TracedStep& step) {
    return static_cast<std::size_t>(
        std::count_if(step.backward.begin(), step.backward.end(),
                      [](const StepMark& mark) { return mark.kind == MarkKind::ready; }));
}

std::vector<MarkKind> kinds_of(const TracedStep& step) {
    std::vector<MarkKind> kinds;
    for (const std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        for (const StepMark& mark : *pass) {
            kinds.push_back(mark.kind);
        }
        kinds.push_back(MarkKind::collective);  // where forward ends
    }
    return kinds;
}

// The value that most have; of several the first met.
template <typename Items, typename Value>
auto most_common(const Items& items, Value value) {
    using Key = decltype(value(*items.begin()));
    std::map<Key, std::size_t> counts;
    std::optional<Key> best;
    for (const auto& item : items) {
        ++counts[value(item)];
    }
    for (const auto& item : items) {
        const Key key = value(item);
        if (!best || counts[key] > counts[*best]) {
            best = key;
        }
    }
    return *best;
}

// Every mark at its median over the steps, scaled so that the whole is as long as the median step:
// medians of many parts sum to less.
std::vector<StepMark> typical_marks(const std::vector<const TracedStep*>& steps,
                                    std::vector<StepMark> TracedStep::*pass) {
    std::vector<StepMark> marks = steps.front()->*pass;
    const auto settle = [&](Duration StepMark::*part) {
        std::vector<Duration> totals;
        for (const TracedStep* step : steps) {
            Duration total{0};
            for (const StepMark& mark : step->*pass) {
                total += mark.*part;
            }
            totals.push_back(total);
        }
        Duration sum{0};
        for (std::size_t i = 0; i < marks.size(); ++i) {
            marks[i].*part =
                median_of(steps, [&](const TracedStep* step) { return (step->*pass)[i].*part; });
            sum += marks[i].*part;
        }
        if (sum > Duration{0}) {
            const double factor =
                static_cast<double>(median(totals).count()) / static_cast<double>(sum.count());
            for (StepMark& mark : marks) {
                mark.*part =
                    Duration{std::llround(static_cast<double>((mark.*part).count()) * factor)};
            }
        }
    };
    settle(&StepMark::host);
    settle(&StepMark::device);
    return marks;
}

std::string list_of_bytes(const std::vector<TracedAllReduce>& all_reduces) {
    std::string text;
    for (const TracedAllReduce& all_reduce : all_reduces) {
        text += (text.empty() ? "" : ", ") + std::to_string(all_reduce.bytes.count);
    }
    return text;
}

class Importer {
  public:
    Importer(const std::vector<TracedRank>& ranks, const KinetoImportRequest& request)
        : ranks_(ranks), request_(request) {}

    KinetoImport run() {
        check_ranks();
        choose_steps();
        choose_group();
        find_unused_map();
        find_sizes();
        complete_bytes();
        find_all_reduces();
        find_costs();
        write_scenario();
        report_rest();
        return std::move(result_);
    }

  private:
    void say(FindingKind kind, std::string item, std::string text) {
        result_.findings.push_back({kind, std::move(item), std::move(text)});
    }
    [[noreturn]] void fail(const std::string& pointer, const std::string& expected,
                           const std::string& got) const {
        throw InputError(file_, pointer, expected, got);
    }

    // --- which ranks and steps -------------------------------------------------------------------

    void check_ranks() {
        invariant(!ranks_.empty(), "there is a trace");
        file_ = ranks_.front().file;
        std::map<std::int64_t, std::string> files;
        for (const TracedRank& rank : ranks_) {
            if (rank.rank) {
                const auto [other, is_new] = files.emplace(*rank.rank, rank.file);
                if (!is_new) {
                    throw InputError(rank.file, "/distributedInfo/rank",
                                     "another rank than that of " + other->second,
                                     std::to_string(*rank.rank));
                }
            }
            if (rank.world_size != ranks_.front().world_size) {
                throw InputError(rank.file, "/distributedInfo/world_size",
                                 fmt::format("{}, as in {}",
                                             ranks_.front().world_size
                                                 ? std::to_string(*ranks_.front().world_size)
                                                 : "none",
                                             file_),
                                 rank.world_size ? std::to_string(*rank.world_size) : "none");
            }
            if (rank.has_device != ranks_.front().has_device) {
                throw InputError(rank.file, "", "kernels in all traces or in none",
                                 "some with and some without");
            }
            check_same_run(rank);
        }
    }

    // Ranks of one run reduce the same buckets.
    void check_same_run(const TracedRank& rank) const {
        const auto reduced = [](const TracedRank& of) {
            std::vector<std::int64_t> elements;
            for (const TracedCollective& collective : of.steps.back().collectives) {
                if (collective.in_backward && collective.name == "allreduce") {
                    elements.push_back(collective.elements);
                }
            }
            return elements;
        };
        const std::vector<std::int64_t> expected = reduced(ranks_.front());
        const std::vector<std::int64_t> got = reduced(rank);
        if (got != expected) {
            throw InputError(rank.file, "/traceEvents",
                             fmt::format("the all-reduces of one run: of {} elements, as in {}",
                                         fmt::join(expected, ", "), file_),
                             got.empty() ? "none" : fmt::format("{}", fmt::join(got, ", ")));
        }
    }

    // Of each rank, the steps that most steps are like; the scenario is made of those of the rank
    // that the others wait for.
    void choose_steps() {
        std::vector<std::vector<const TracedStep*>> by_rank;
        for (const TracedRank& rank : ranks_) {
            by_rank.push_back(alike(rank));
        }
        primary_ = 0;
        Duration least = time_in_collectives(by_rank[0]);
        for (std::size_t i = 1; i < by_rank.size(); ++i) {
            const Duration time = time_in_collectives(by_rank[i]);
            if (time < least) {
                least = time;
                primary_ = i;
            }
        }
        file_ = ranks_[primary_].file;
        all_steps_ = by_rank;
        steps_ = by_rank[primary_];
        report_steps();
        if (ranks_.size() > 1) {
            const Duration most = time_in_collectives(
                *std::max_element(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) {
                    return time_in_collectives(a) < time_in_collectives(b);
                }));
            say(FindingKind::found, "ranks",
                fmt::format("{} traces; the scenario is made of {}, for which the others wait: "
                            "all-reduces take it {:.3f} ms a step, and up to {:.3f} ms elsewhere",
                            ranks_.size(), file_, to_ms(least), to_ms(most)));
        }
    }

    static Duration time_in_collectives(const std::vector<const TracedStep*>& steps) {
        return median_of(steps, [](const TracedStep* step) {
            Duration sum{0};
            for (const TracedCollective& collective : step->collectives) {
                if (collective.in_backward && collective.begin) {
                    sum += *collective.end - *collective.begin;
                }
            }
            return sum;
        });
    }

    static std::vector<const TracedStep*> alike(const TracedRank& rank) {
        const std::size_t gradients = most_common(rank.steps, gradients_of);
        std::vector<const TracedStep*> steps;
        for (const TracedStep& step : rank.steps) {
            if (gradients_of(step) == gradients) {
                steps.push_back(&step);
            }
        }
        const std::vector<MarkKind> kinds =
            most_common(steps, [](const TracedStep* step) { return kinds_of(*step); });
        std::vector<const TracedStep*> result;
        for (const TracedStep* step : steps) {
            if (kinds_of(*step) == kinds) {
                result.push_back(step);
            }
        }
        if (result.size() > 1) {
            return result;
        }
        // No two do the same: the one of median length stands for all.
        std::sort(steps.begin(), steps.end(),
                  [](const TracedStep* a, const TracedStep* b) { return a->length < b->length; });
        return {steps[steps.size() / 2]};
    }

    void report_steps() {
        const TracedRank& rank = ranks_[primary_];
        result_.step = median_of(steps_, [](const TracedStep* step) { return step->length; });
        result_.device_busy =
            median_of(steps_, [](const TracedStep* step) { return step->device_busy; });
        result_.file = file_;
        result_.typical = **std::min_element(
            steps_.begin(), steps_.end(), [&](const TracedStep* a, const TracedStep* b) {
                const auto off = [&](const TracedStep* s) {
                    return std::max(s->length - result_.step, result_.step - s->length);
                };
                return off(a) < off(b);
            });
        Duration shortest = result_.step;
        Duration longest = result_.step;
        for (const TracedStep* step : steps_) {
            shortest = std::min(shortest, step->length);
            longest = std::max(longest, step->length);
        }
        say(FindingKind::found, "steps",
            fmt::format("{} ({} to {}) in {} events; median {:.3f} ms, {:.3f} to {:.3f} ms",
                        steps_.size(), steps_.front()->name, steps_.back()->name, rank.events_read,
                        to_ms(result_.step), to_ms(shortest), to_ms(longest)));
        if (steps_.size() < rank.steps.size()) {
            say(FindingKind::found, "steps",
                fmt::format("{} others are left out, as their operations differ",
                            rank.steps.size() - steps_.size()));
        }
        const TracedStep& step = *steps_.front();
        if (step.micro_steps > 1) {
            say(FindingKind::found, "accumulation",
                fmt::format("{} forwards a step; the last one and its backward stand for all",
                            step.micro_steps));
        }
        const auto typical = [&](Duration TracedStep::*part) {
            return to_ms(median_of(steps_, [&](const TracedStep* s) { return s->*part; }));
        };
        say(FindingKind::found, "passes",
            fmt::format("forward until {:.3f} ms, backward until {:.3f} ms, then the optimizer "
                        "(on the host)",
                        typical(&TracedStep::backward_begin), typical(&TracedStep::backward_end)));
    }

    // --- all-reduces -----------------------------------------------------------------------------

    // Those of gradients: in backward, of the process group that moves most there.
    [[nodiscard]] std::vector<const TracedCollective*> reductions(const TracedStep& step) const {
        std::vector<const TracedCollective*> found;
        for (const TracedCollective& collective : step.collectives) {
            if (collective.in_backward && collective.name == "allreduce" &&
                collective.group == group_ && collective.elements != 0 &&
                !is_unused_map(step, collective) &&
                dtype_of(collective.dtype.empty() ? "Float" : collective.dtype)) {
                found.push_back(&collective);
            }
        }
        return found;
    }

    // An int32 for each parameter, all-reduced when all are ready. On a GPU from the host's memory.
    static bool is_unused_map(const TracedStep& step, const TracedCollective& collective) {
        const std::size_t gradients = gradients_of(step);
        return collective.ready_before == gradients && &collective != &step.collectives.front() &&
               collective.elements == static_cast<std::int64_t>(gradients) &&
               (collective.dtype.empty() || collective.dtype == "Int");
    }

    void find_unused_map() {
        const TracedStep& step = *steps_.front();
        unused_map_ = std::any_of(step.collectives.begin(), step.collectives.end(),
                                  [&](const TracedCollective& collective) {
                                      return collective.in_backward &&
                                             collective.name == "allreduce" &&
                                             is_unused_map(step, collective);
                                  });
        if (unused_map_) {
            say(FindingKind::found, "unused parameters",
                "an all-reduce of one number per gradient: find_unused_parameters, which keeps the "
                "buckets of the first iteration");
        }
    }

    void choose_group() {
        std::map<std::string, std::int64_t> bytes;
        for (const TracedCollective& collective : steps_.front()->collectives) {
            if (collective.in_backward && collective.name == "allreduce") {
                bytes[collective.group] += collective.bytes.count;
            }
        }
        for (const auto& [group, sum] : bytes) {
            if (sum > bytes[group_] || bytes.size() == 1) {
                group_ = group;
            }
        }
        if (bytes.size() > (bytes.count("") != 0 && bytes.at("") == 0 ? 2U : 1U)) {
            say(FindingKind::found, "process groups",
                fmt::format("all-reduces of {} groups in backward; those of group {} are taken for "
                            "the gradients', as they move most",
                            bytes.size(), group_));
        }
    }

    void find_all_reduces() {
        const std::vector<const TracedCollective*> first = reductions(*steps_.front());
        for (std::size_t k = 0; k < first.size(); ++k) {
            TracedAllReduce all_reduce{first[k]->bytes};
            std::vector<Duration> starts;
            for (const TracedStep* step : steps_) {
                const std::vector<const TracedCollective*> found = reductions(*step);
                if (found.size() != first.size() || found[k]->bytes != first[k]->bytes) {
                    fail("/traceEvents", "the same all-reduces in every step",
                         fmt::format("others in {} than in {}", step->name, steps_.front()->name));
                }
                starts.push_back(found[k]->begin.value_or(found[k]->issued));
            }
            all_reduce.start = median(starts);
            result_.all_reduces.push_back(std::move(all_reduce));
        }
        refuse_sharded(first.empty());
        find_ranks(first);
        if (first.empty()) {
            say(FindingKind::missing, "all-reduces",
                "none in backward: a run of one rank, or of a strategy without them; the scenario "
                "synchronises as DistributedDataParallel would");
            return;
        }
        result_.element =
            name_of(*dtype_of(first.front()->dtype.empty() ? "Float" : first.front()->dtype));
        say(FindingKind::found, "all-reduces",
            fmt::format("{} a step, of {} {} bytes in this order", first.size(),
                        list_of_bytes(result_.all_reduces), result_.element));
        find_wire_times();
        check_sums();
    }

    void refuse_sharded(bool nothing_reduced) const {
        std::map<std::string, std::size_t> counts;
        for (const TracedCollective& collective : steps_.front()->collectives) {
            ++counts[collective.name];
        }
        for (const auto& [name, count] : counts) {
            const bool scatters = name.find("reducescatter") != std::string::npos;
            if (scatters && nothing_reduced) {
                fail("/traceEvents", "all-reduces of gradients (DistributedDataParallel)",
                     fmt::format("{} reduce-scatters a step: FSDP or ZeRO, which shard what "
                                 "this tool takes as whole",
                                 count));
            }
        }
    }

    void find_ranks(const std::vector<const TracedCollective*>& reduced) {
        std::optional<std::int64_t> ranks;
        if (!reduced.empty() && reduced.front()->group_size > 0) {
            ranks = reduced.front()->group_size;
        } else if (ranks_[primary_].world_size) {
            ranks = ranks_[primary_].world_size;
        } else if (ranks_.size() > 1) {
            ranks = static_cast<std::int64_t>(ranks_.size());
        }
        if (ranks && request_.ranks && *ranks != *request_.ranks) {
            throw InputError("--ranks", "",
                             fmt::format("{}, as the trace says, or nothing (predict takes --set "
                                         "/cluster/ranks=N)",
                                         *ranks),
                             std::to_string(*request_.ranks));
        }
        if (!ranks) {
            ranks = request_.ranks;
        }
        if (!ranks) {
            throw InputError(file_, "/distributedInfo/world_size",
                             "the number of ranks, in the trace or as --ranks", "neither");
        }
        if (*ranks < 1) {
            fail("/distributedInfo/world_size", "at least one rank", std::to_string(*ranks));
        }
        result_.ranks = *ranks;
    }

    // Once all ranks are there, the last to arrive sees nothing but the wire: so the shortest of
    // the ranks' times, and where not all ranks were traced, of all steps.
    void find_wire_times() {
        const bool all_ranks = std::ssize(ranks_) >= result_.ranks && same_steps();
        for (std::size_t k = 0; k < result_.all_reduces.size(); ++k) {
            std::vector<double> by_step;
            for (std::size_t s = 0; s < steps_.size(); ++s) {
                if (const auto time = shortest(k, s, all_ranks)) {
                    by_step.push_back(to_us(*time));
                }
            }
            if (by_step.empty()) {
                continue;
            }
            if (!all_ranks) {
                by_step = {*std::min_element(by_step.begin(), by_step.end())};
            }
            result_.all_reduces[k].wire_us = std::move(by_step);
        }
        if (result_.all_reduces.front().wire_us.empty()) {
            say(FindingKind::missing, "link",
                "no event tells when an all-reduce ran; give a link with --link");
        } else if (all_ranks) {
            say(FindingKind::assumed, "link",
                "an all-reduce takes what it takes the rank that comes last");
        } else {
            say(FindingKind::assumed, "link",
                fmt::format("of {} ranks {} traced, so waiting for the others cannot be told from "
                            "the wire: the shortest of {} steps is taken for the wire",
                            result_.ranks, ranks_.size() == 1 ? "one was" : "not all were",
                            steps_.size()));
        }
    }

    [[nodiscard]] bool same_steps() const {
        return std::all_of(all_steps_.begin(), all_steps_.end(), [&](const auto& steps) {
            return steps.size() == steps_.size() &&
                   std::equal(
                       steps.begin(), steps.end(), steps_.begin(),
                       [](const TracedStep* a, const TracedStep* b) { return a->name == b->name; });
        });
    }

    [[nodiscard]] std::optional<Duration> shortest(std::size_t k, std::size_t s,
                                                   bool all_ranks) const {
        std::optional<Duration> least;
        for (const auto& steps : all_steps_) {
            if (&steps != &all_steps_[primary_] && !all_ranks) {
                continue;
            }
            const std::vector<const TracedCollective*> found = reductions(*steps[s]);
            if (k < found.size() && found[k]->begin) {
                const Duration time = *found[k]->end - *found[k]->begin;
                least = std::min(least.value_or(time), time);
            }
        }
        return least;
    }

    // --- gradients -------------------------------------------------------------------------------

    // By readiness.
    void find_sizes() {
        const TracedStep& step = *steps_.front();
        const std::size_t count = gradients_of(step);
        std::vector<std::int64_t> in;
        std::vector<std::int64_t> back_bytes;
        for (const StepMark& mark : step.backward) {
            if (mark.kind == MarkKind::copy_in) {
                in.push_back(mark.elements);
            } else if (mark.kind == MarkKind::copy_back) {
                back_bytes.push_back(mark.elements >= 0 ? mark.elements * gradient_bytes()
                                                        : mark.bytes);
            }
        }
        const auto all_known = [&](const std::vector<std::int64_t>& values) {
            return values.size() == count &&
                   std::all_of(values.begin(), values.end(), [](auto v) { return v > 0; });
        };
        std::string how;
        if (all_known(in)) {
            sizes_ = in;
            how = "sizes from the shapes of DDP's copies";
        } else if (all_known(back_bytes)) {
            for (const std::int64_t bytes : back_bytes) {
                sizes_.push_back(bytes / gradient_bytes());
            }
            how =
                "sizes from the bytes that DDP copies out of its buckets, which it does in the "
                "order of readiness";
        }
        name_gradients(count, how);
        say(FindingKind::found, "gradients",
            fmt::format("{} (AccumulateGrad), {} elements; {}", count,
                        std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0}), how));
    }

    // Where no event has an all-reduce's size: DDP launches a bucket as its last gradient is ready.
    void complete_bytes() {
        bool any = false;
        for (TracedRank& rank : ranks_) {
            for (TracedStep& step : rank.steps) {
                std::size_t from = 0;
                for (TracedCollective& collective : step.collectives) {
                    const bool reduces = collective.in_backward && collective.name == "allreduce";
                    if (reduces && collective.elements < 0) {
                        const std::size_t until = std::min(collective.ready_before, sizes_.size());
                        collective.elements = 0;
                        for (std::size_t i = from; i < until; ++i) {
                            collective.elements += sizes_[i];
                        }
                        collective.bytes = Bytes{collective.elements * gradient_bytes()};
                        any = true;
                    }
                    from = reduces ? std::max(from, collective.ready_before) : from;
                }
            }
        }
        if (any) {
            say(FindingKind::assumed, "all-reduces",
                "no event tells their bytes: each is taken to hold the gradients that were ready "
                "since the one before");
        }
    }

    // DDP holds gradients as its hook's collectives do, but for what it casts.
    [[nodiscard]] std::int64_t gradient_bytes() const {
        return element_size(gradient_dtype()).count;
    }
    [[nodiscard]] DType gradient_dtype() const {
        const auto found = reductions(*steps_.front());
        if (found.empty() || found.front()->dtype.empty() || steps_.front()->hook_casts) {
            return DType::float32;
        }
        return dtype_of(found.front()->dtype).value_or(DType::float32);
    }

    void name_gradients(std::size_t count, std::string& how) {
        std::vector<std::int64_t> expected;
        for (const std::int32_t index : request_.readiness) {
            expected.push_back(request_.parameters[static_cast<std::size_t>(index)].numel);
        }
        if (expected.empty()) {
            if (sizes_.empty()) {
                fail("/traceEvents",
                     "shapes (record_shapes=True), DDP's copies out of its buckets, or --model",
                     fmt::format("{} gradients whose sizes nothing tells", count));
            }
            for (std::size_t i = 0; i < count; ++i) {
                names_.push_back(fmt::format("parameter {}", count - 1 - i));
            }
            say(FindingKind::assumed, "names",
                "a trace has none: gradients are numbered against the order of readiness, as "
                "parameters mostly are; --model names them");
            return;
        }
        if (expected.size() != count) {
            fail("/traceEvents", fmt::format("the model's {} gradients", expected.size()),
                 fmt::format("{} (AccumulateGrad)", count));
        }
        if (sizes_.empty()) {
            sizes_ = expected;
            how = "sizes from the model";
        } else if (sizes_ != expected) {
            const auto at = static_cast<std::size_t>(
                std::mismatch(sizes_.begin(), sizes_.end(), expected.begin()).first -
                sizes_.begin());
            fail("/traceEvents",
                 fmt::format(
                     "{} elements of {} as gradient {} by readiness", expected[at],
                     request_.parameters[static_cast<std::size_t>(request_.readiness[at])].name,
                     at + 1),
                 std::to_string(sizes_[at]));
        }
        for (const std::int32_t index : request_.readiness) {
            names_.push_back(request_.parameters[static_cast<std::size_t>(index)].name);
        }
    }

    // Whether the all-reduces hold these gradients, in the order of readiness.
    void check_sums() {
        const std::int64_t sum = std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
        const std::vector<const TracedCollective*> found = reductions(*steps_.front());
        if (found.empty()) {
            return;
        }
        std::int64_t reduced = 0;
        std::string ready;
        for (const TracedCollective* collective : found) {
            reduced += collective->elements;
            ready += fmt::format("{}{}", ready.empty() ? "" : ", ", collective->ready_before);
        }
        say(FindingKind::found, "launches",
            fmt::format("all-reduces were issued when {} gradients were ready", ready));
        if (reduced != sum) {
            say(FindingKind::missing, "gradients",
                fmt::format(
                    "all-reduces move {} elements, the gradients have {}: another all-reduce "
                    "is among them, or gradients are that were never ready",
                    reduced, sum));
        }
    }

    // --- costs -----------------------------------------------------------------------------------

    static bool is_copy(const StepMark& mark) {
        return mark.kind == MarkKind::copy_in || mark.kind == MarkKind::copy_back ||
               mark.kind == MarkKind::copy_buffer;
    }

    void find_costs() {
        forward_ = typical_marks(steps_, &TracedStep::forward);
        backward_ = typical_marks(steps_, &TracedStep::backward);
        std::vector<Duration> copies;
        std::vector<Duration> issues;
        for (const std::vector<StepMark>* pass : {&forward_, &backward_}) {
            for (const StepMark& mark : *pass) {
                if (is_copy(mark)) {
                    copies.push_back(mark.host);
                } else if (mark.kind == MarkKind::collective) {
                    issues.push_back(has_device() ? mark.host : mark.device);
                }
            }
        }
        copy_launch_ = copies.empty() ? Duration{0} : median(copies);
        if (!issues.empty()) {
            result_.host_issue = median(issues);
        }
        find_copy_rate();
    }

    [[nodiscard]] bool has_device() const { return ranks_[primary_].has_device; }

    void find_copy_rate() {
        Duration time{0};
        std::int64_t bytes = 0;
        std::size_t in = 0;
        std::size_t back = 0;
        for (const StepMark& mark : backward_) {
            std::size_t* const next = mark.kind == MarkKind::copy_in     ? &in
                                      : mark.kind == MarkKind::copy_back ? &back
                                                                         : nullptr;
            if (next != nullptr && *next < sizes_.size()) {
                bytes += sizes_[(*next)++] * gradient_bytes();
                time += mark.device;
            }
        }
        if (time > Duration{0} && bytes > 0) {
            result_.copy_gb_per_s = static_cast<double>(bytes) / to_us(time) / 1e3;
            say(FindingKind::found, "copies",
                fmt::format("{} into buckets, {} out of them; {:.1f} GB/s{}", in, back,
                            *result_.copy_gb_per_s,
                            has_device()
                                ? fmt::format(", {:.1f} us of the host each", to_us(copy_launch_))
                                : ""));
        }
        views_ = steps_.front()->is_ddp && back == 0;
        if (views_) {
            say(FindingKind::found, "views",
                "nothing is copied out of buckets: gradient_as_bucket_view");
        }
    }

    // --- the scenario ----------------------------------------------------------------------------

    Json operations(const std::vector<StepMark>& marks, bool backward) {
        Json list = Json::array();
        std::size_t ready = 0;
        for (const StepMark& mark : marks) {
            if (is_copy(mark)) {
                carry_ += has_device() ? mark.host - copy_launch_ : Duration{0};
                continue;
            }
            if (mark.kind == MarkKind::collective) {
                carry_ += has_device() ? mark.host - result_.host_issue.value_or(Duration{0})
                                       : Duration{0};
                continue;
            }
            const Duration host = std::max(mark.host + carry_, Duration{0});
            carry_ += mark.host - host;
            Json operation{
                {"name", mark.kind == MarkKind::ready && backward ? names_[ready] + " is ready"
                                                                  : mark.name},
                {"host_us", rounded_us(host)},
                {"device_us", rounded_us(mark.device)}};
            if (mark.kind == MarkKind::ready && backward) {
                operation["ready"] = {names_[ready++]};
            }
            list.push_back(std::move(operation));
        }
        return list;
    }

    Json buffers() {
        Json groups = Json::array();
        std::vector<std::int64_t> copies;
        for (const StepMark& mark : forward_) {
            if (mark.kind == MarkKind::copy_buffer) {
                copies.push_back(mark.bytes);
            }
        }
        std::size_t next = 0;
        for (const TracedCollective& collective : steps_.front()->collectives) {
            if (collective.name != "broadcast" || collective.in_backward) {
                continue;
            }
            if (collective.bytes.count <= 0) {
                say(FindingKind::missing, "buffers",
                    "a broadcast whose size no event tells is left out");
                continue;
            }
            std::int64_t tensors = 0;
            for (std::int64_t left = collective.bytes.count; next < copies.size() && left > 0;
                 ++next) {
                left -= copies[next];
                ++tensors;
            }
            groups.push_back({{"bytes", collective.bytes.count},
                              {"tensors", std::max<std::int64_t>(tensors, 1)}});
            say(FindingKind::found, "buffers",
                fmt::format(
                    "a broadcast of {} {}({} bytes){}", collective.elements,
                    collective.dtype.empty() ? "" : collective.dtype + " ", collective.bytes.count,
                    tensors > 0 ? fmt::format(", copied back as {} tensors", tensors) : ""));
        }
        return groups;
    }

    Json gradients() const {
        Json list = Json::array();
        std::vector<std::size_t> order(names_.size());  // by parameter
        if (request_.readiness.empty()) {
            std::iota(order.rbegin(), order.rend(), 0);
        } else {
            for (std::size_t i = 0; i < order.size(); ++i) {
                order[static_cast<std::size_t>(request_.readiness[i])] = i;
            }
        }
        for (const std::size_t i : order) {
            list.push_back(
                {{"name", names_[i]}, {"numel", sizes_[i]}, {"dtype", name_of(gradient_dtype())}});
        }
        return list;
    }

    void write_scenario() {
        Json workload{{"gradients", gradients()}};
        const Json groups = buffers();
        if (!groups.empty()) {
            workload["buffers"] = groups;
        }
        workload["forward_operations"] = operations(forward_, false);
        workload["backward_operations"] = operations(backward_, true);
        if (result_.host_issue) {
            workload["collective_issue_us"] = rounded_us(*result_.host_issue);
        }
        if (result_.copy_gb_per_s) {
            workload["copy_gb_per_s"] = std::clamp(*result_.copy_gb_per_s, 1e-6, 1e6);
        }
        if (has_device()) {
            workload["copy_launch_us"] = rounded_us(copy_launch_);
        } else {
            workload["host_is_device"] = true;
        }
        Json step{{"optimizer_ms", rounded_ms(median_of(steps_, [](const TracedStep* s) {
                       return s->optimizer_device;
                   }))}};
        if (has_device()) {
            const Duration host =
                median_of(steps_, [](const TracedStep* s) { return s->optimizer_host; });
            step["optimizer_launch_ms"] = rounded_ms(std::max(host + carry_, Duration{0}));
        }
        if (steps_.front()->micro_steps > 1) {
            step["accumulation"] = steps_.front()->micro_steps;
        }
        result_.scenario = {{"name", scenario_name()},
                            {"workload", std::move(workload)},
                            {"cluster", {{"ranks", result_.ranks}}},
                            {"sync", sync(groups.empty())},
                            {"step", std::move(step)}};
    }

    [[nodiscard]] std::string scenario_name() const {
        const std::size_t slash = file_.rfind('/');
        std::string name = slash == std::string::npos ? file_ : file_.substr(slash + 1);
        constexpr std::size_t longest = 150;
        std::string clean;
        for (const char c : name.substr(0, longest)) {
            clean += static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f
                         ? c
                         : '?';
        }
        return clean.empty() ? "trace" : clean;
    }

    Json sync(bool without_buffers) {
        Json sync{{"strategy", "ddp"}};
        if (views_) {
            sync["views"] = true;
        }
        if (without_buffers) {
            sync["broadcast_buffers"] = false;
        }
        const std::vector<const TracedCollective*> found = reductions(*steps_.front());
        if (steps_.front()->hook_casts && !found.empty() &&
            (found.front()->dtype == "Half" || found.front()->dtype == "BFloat16")) {
            sync["comm_hook"] = found.front()->dtype == "Half" ? "fp16" : "bf16";
            say(FindingKind::found, "comm hook",
                "gradients travel as " + std::string(result_.element));
        }
        if (found.empty()) {
            say(FindingKind::assumed, "buckets", "DistributedDataParallel's default caps");
            return sync;
        }
        if (!steps_.front()->is_ddp) {
            say(FindingKind::assumed, "strategy",
                "no reducer of DistributedDataParallel was seen at work; the all-reduces are taken "
                "for its");
        }
        std::vector<std::int64_t> elements;
        for (const TracedCollective* collective : found) {
            elements.push_back(collective->elements);
        }
        if (unused_map_) {
            sync["find_unused_parameters"] = true;
        }
        const TracedCaps caps = caps_of(sizes_, elements, gradient_dtype(), unused_map_);
        if (const std::optional<Bytes> cap = caps.sync.bucket_cap.named()) {
            sync["bucket_cap_mib"] = typed_mib(*cap);
        }
        if (!caps.sync.explicit_cap_sets_first) {
            sync["pytorch_version"] = "1.13";
        }
        for (const Bytes cap : caps.sync.bucket_cap_list) {
            sync["bucket_cap_mib_list"].push_back(typed_mib(cap));
        }
        // One bucket may have any cap that is large enough.
        say(!caps.explained       ? FindingKind::missing
            : elements.size() > 1 ? FindingKind::found
                                  : FindingKind::assumed,
            "buckets", caps.text);
        return sync;
    }

    // --- what else there is ----------------------------------------------------------------------

    void report_rest() {
        const TracedStep& step = *steps_.front();
        if (has_device()) {
            const double share = static_cast<double>(result_.device_busy.count()) /
                                 static_cast<double>(result_.step.count());
            say(FindingKind::found, "launching",
                fmt::format("the compute stream is busy for {:.3f} ms of {:.3f} ms ({:.0f} %){}",
                            to_ms(result_.device_busy), to_ms(result_.step), 100 * share,
                            share < launch_bound_share
                                ? ": the device waits for the host, the step is launch-bound"
                                : ""));
            if (step.waits > 0) {
                say(FindingKind::assumed, "waiting",
                    fmt::format("the host waits for the device {} times a step, {:.3f} ms in all; "
                                "the scenario lets it run on",
                                step.waits, to_ms(step.waited)));
            }
            if (step.other_streams > Duration{0}) {
                say(FindingKind::missing, "streams",
                    fmt::format("{:.3f} ms a step of kernels on other streams than the busiest are "
                                "left out",
                                to_ms(step.other_streams)));
            }
        } else {
            say(FindingKind::found, "device",
                "no kernels: the host computes (a CPU, or a profile without CUDA activities)");
            say(FindingKind::found, "waiting",
                fmt::format(
                    "the host waits for collectives and for other ranks for {:.3f} ms of "
                    "a step",
                    to_ms(median_of(steps_, [](const TracedStep* s) { return s->waited; }))));
        }
        report_other_collectives();
        say(FindingKind::assumed, "profiler",
            "what tracing itself costs the host is in the times of operations");
    }

    void report_other_collectives() {
        std::map<std::string, std::size_t> others;
        const std::vector<const TracedCollective*> found = reductions(*steps_.front());
        const std::set<const TracedCollective*> reduced(found.begin(), found.end());
        for (const TracedCollective& collective : steps_.front()->collectives) {
            const bool is_buffer = collective.name == "broadcast" && !collective.in_backward;
            const bool is_map = unused_map_ && is_unused_map(*steps_.front(), collective);
            if (reduced.count(&collective) == 0 && !is_buffer && !is_map) {
                ++others[fmt::format("{} in {} of {} bytes", collective.name,
                                     collective.in_backward ? "backward" : "forward",
                                     collective.bytes.count)];
            }
        }
        constexpr std::size_t most_listed = 8;
        std::string text;
        std::size_t listed = 0;
        for (const auto& [what, count] : others) {
            if (++listed <= most_listed) {
                text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", count, what);
            }
        }
        if (!others.empty()) {
            say(FindingKind::missing, "other collectives",
                fmt::format("{}{}: the scenario leaves them out (SyncBatchNorm, metrics)", text,
                            others.size() > most_listed
                                ? fmt::format(" and {} more kinds", others.size() - most_listed)
                                : ""));
        }
    }

    static constexpr double launch_bound_share = 0.5;

    std::vector<TracedRank> ranks_;
    const KinetoImportRequest& request_;
    std::string file_;
    std::size_t primary_ = 0;
    std::vector<const TracedStep*> steps_;
    std::vector<std::vector<const TracedStep*>> all_steps_;  // by rank
    std::string group_;
    std::vector<std::int64_t> sizes_;  // of gradients, by readiness
    std::vector<std::string> names_;   // likewise
    std::vector<StepMark> forward_;
    std::vector<StepMark> backward_;
    Duration copy_launch_{0};
    Duration carry_{0};  // host time that marks took beyond what is simulated of them
    bool views_ = false;
    bool unused_map_ = false;  // DDP's, after the last bucket
    KinetoImport result_;
};

}  // namespace

TracedRank read_traced_rank(const ByteSource& source, const std::string& file) {
    const KinetoTrace trace = read_kineto_trace(source, file);
    return {.file = file,
            .rank = trace.rank,
            .world_size = trace.world_size,
            .backend = trace.backend,
            .nccl_version = trace.nccl_version,
            .device = trace.device,
            .events_read = trace.events_read,
            .has_device = trace.has_device,
            .steps = traced_steps(trace)};
}

KinetoImport import_kineto(const std::vector<TracedRank>& ranks,
                           const KinetoImportRequest& request) {
    return Importer(ranks, request).run();
}

}  // namespace bucketwise
