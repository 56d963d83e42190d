#include "import/collectives/gradient_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "import/collectives/step_period.h"
#include "import/source/dtype_names.h"
#include "import/source/plain_text.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// All-reduces that average a loss or count samples have no more elements.
constexpr std::int64_t most_of_scalars = 16;

using Places = std::vector<std::size_t>;

bool may_be_gradients(const LoggedCollective& collective) {
    return collective.kind == LoggedKind::all_reduce && collective.elements > 0 &&
           dtype_named(collective.dtype).has_value();
}

std::int64_t bytes_of(const LoggedCollective& collective) {
    const auto dtype = dtype_named(collective.dtype);
    return dtype ? collective.elements * element_size(*dtype).count : 0;
}

// --- the group of gradients ---

// A process group that may be the gradients'.
struct Candidate {
    std::string name;       // for people
    std::string described;  // the program's name for it
    std::vector<std::int64_t> elements;
    std::int64_t bytes = 0;
};

std::map<std::string, Candidate> candidates_of(const CollectiveLog& log) {
    std::map<std::string, Candidate> candidates;
    for (const LoggedCollective& collective : log.collectives) {
        if (may_be_gradients(collective)) {
            Candidate& candidate = candidates[collective.group];
            candidate.name = collective.description.empty()
                                 ? collective.group
                                 : fmt::format("{} ({})", collective.group, collective.description);
            candidate.described = collective.description;
            candidate.elements.push_back(collective.elements);
            candidate.bytes += bytes_of(collective);
        }
    }
    return candidates;
}

// By the names of Megatron and of device meshes: "mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP".
bool is_of_layers(const std::string& described) {
    std::string plain = " " + described + " ";
    for (char& c : plain) {
        c = letters_of({&c, 1}).empty() ? ' ' : lower_letter(c);
    }
    return std::ranges::any_of(
        std::array{" tensor ", " tp ", " pipeline ", " pp "},
        [&](const char* word) { return plain.find(word) != std::string::npos; });
}

std::string choose_group(const CollectiveLog& log, const GradientStepsRequest& request,
                         Findings& findings) {
    const std::map<std::string, Candidate> candidates = candidates_of(log);
    if (request.group) {
        if (!candidates.contains(*request.group)) {
            const auto names = transformed(candidates, [](const auto& one) { return one.first; });
            throw InputError("--group", "",
                             fmt::format("a process group with all-reduces of gradients ({})",
                                         fmt::join(names, ", ")),
                             *request.group);
        }
        return *request.group;
    }
    if (candidates.empty()) {
        throw InputError(log.file, "", "all-reduces of gradients (DistributedDataParallel)",
                         fmt::format("none among {} collectives", log.collectives.size()));
    }
    const auto weight = [](const auto& candidate) {
        return std::pair(!is_of_layers(candidate.second.described),
                         upper_median(candidate.second.elements));
    };
    const auto chosen = std::ranges::max_element(candidates, {}, weight);
    if (candidates.size() > 1) {
        std::vector<std::string> others;
        for (const auto& candidate : candidates) {
            if (candidate.first != chosen->first) {
                others.push_back(fmt::format("{} ({} all-reduces, {} bytes)", candidate.second.name,
                                             candidate.second.elements.size(),
                                             candidate.second.bytes));
            }
        }
        findings.assumed("process groups",
                         "gradients are those of group {}, whose all-reduces are the largest; left "
                         "out: {}; --group takes another",
                         chosen->second.name, fmt::join(others, ", "));
    }
    return chosen->first;
}

// --- sharded gradients ---

// Collectives of one kind.
struct Seen {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    std::int64_t ranks = 0;
    std::string text = {};  // "2 all-reduces over 8 ranks"
};

template <typename Holds>
Seen seen_of(const CollectiveLog& log, const char* name, const Holds& holds) {
    Seen seen;
    for (const LoggedCollective& collective : log.collectives) {
        if (holds(collective)) {
            seen.ranks = seen.count == 0 ? collective.group_size : seen.ranks;
            seen.bytes += bytes_of(collective);
            ++seen.count;
        }
    }
    seen.text = fmt::format("{} {}{}{}", seen.count, name, seen.count == 1 ? "" : "s",
                            seen.ranks > 0 ? fmt::format(" over {} ranks", seen.ranks) : "");
    return seen;
}

// Gloo has no reduce-scatter: PyTorch all-reduces instead and keeps a part. The size of such an
// all-reduce is that of an all-gather's output.
bool gathers_what_is_reduced(const CollectiveLog& log) {
    std::set<std::pair<std::string, std::int64_t>> reduced;
    for (const LoggedCollective& collective : log.collectives) {
        if (may_be_gradients(collective)) {
            reduced.emplace(collective.group, collective.elements);
        }
    }
    return std::ranges::any_of(log.collectives, [&](const LoggedCollective& collective) {
        return collective.kind == LoggedKind::all_gather && collective.group_size > 1 &&
               collective.elements > most_of_scalars && dtype_named(collective.dtype).has_value() &&
               reduced.contains({collective.group, collective.elements * collective.group_size});
    });
}

void refuse_sharded(const CollectiveLog& log) {
    const Seen scattered = seen_of(log, "reduce-scatter", [](const LoggedCollective& collective) {
        return collective.kind == LoggedKind::reduce_scatter &&
               !is_of_layers(collective.description) && collective.elements > most_of_scalars;
    });
    const Seen reduced = seen_of(log, "all-reduce", [](const LoggedCollective& collective) {
        return may_be_gradients(collective) && collective.elements > most_of_scalars;
    });
    std::string got;
    if (scattered.count > 0 && scattered.bytes >= reduced.bytes) {
        got = reduced.count > 0
                  ? fmt::format("HSDP, or ZeRO in groups: {}, and {}", scattered.text, reduced.text)
                  : "FSDP, ZeRO or a distributed optimizer: " + scattered.text;
    } else if (gathers_what_is_reduced(log)) {
        const Seen gathered = seen_of(
            log, "all-gather", [](const auto& c) { return c.kind == LoggedKind::all_gather; });
        got = fmt::format(
            "FSDP or ZeRO: {} with the output sizes of {}, as Gloo's reduce-scatters are recorded",
            gathered.text, reduced.text);
    }
    if (!got.empty()) {
        throw InputError(log.file, "", "all-reduces of whole gradients (DistributedDataParallel)",
                         got + "; sharded gradients are not simulated");
    }
}

// --- steps ---

// A group's all-reduces of gradients with more than `most_small` elements.
Places all_reduces_of(const CollectiveLog& log, const std::string& group, std::int64_t most_small) {
    Places places;
    for (std::size_t i = 0; i < log.collectives.size(); ++i) {
        const LoggedCollective& collective = log.collectives[i];
        if (may_be_gradients(collective) && collective.group == group &&
            collective.elements > most_small) {
            places.push_back(i);
        }
    }
    return places;
}

IssuedAllReduces issued_of(const CollectiveLog& log, const std::string& group,
                           const Places& places) {
    IssuedAllReduces all;
    std::size_t next = 0;
    for (const std::size_t place : places) {
        bool others = false;
        for (; next < place; ++next) {
            others = others || log.collectives[next].group == group;
        }
        next = place + 1;
        all.sizes.push_back(log.collectives[place].elements);
        all.after_others.push_back(others);
        if (log.clock == LogClock::host) {
            all.issued.push_back(*log.collectives[place].issued);
        }
    }
    return all;
}

std::vector<std::int64_t> sizes_of(const CollectiveLog& log, const Places& places) {
    return transformed(places, [&](std::size_t i) { return log.collectives[i].elements; });
}

// The most common steps that the log marks.
std::vector<Places> marked_steps(const CollectiveLog& log, const Places& places) {
    std::map<std::int64_t, Places> by_mark;
    for (const std::size_t place : places) {
        by_mark[log.collectives[place].step].push_back(place);
    }
    std::map<std::vector<std::int64_t>, std::vector<Places>> alike;
    for (const auto& step : by_mark) {
        alike[sizes_of(log, step.second)].push_back(step.second);
    }
    return std::ranges::max_element(
               alike, {},
               [](const auto& one) { return std::pair(one.second.size(), one.first.size()); })
        ->second;
}

std::string text_of(const RepeatedSteps& steps) {
    const char* const length =
        steps.length_by == ToldBy::sum ? ", as many as hold the model's elements"
        : steps.length_by == ToldBy::others
            ? ", as many as hold the elements of the iteration before"
        : steps.length_by == ToldBy::pauses ? ", as many as lie between long pauses: all are alike"
                                            : "";
    return fmt::format("{}; a step begins {}", length,
                       steps.begin_by == ToldBy::others
                           ? "where the group does something else before it"
                           : "after the longest pause");
}

// --- other collectives ---

// DDP's map of unused parameters: an int32 for each, reduced after the last bucket.
bool has_unused_map(const CollectiveLog& log, const GradientSteps& found) {
    std::int64_t parameters = -1;
    return std::ranges::all_of(found.steps, [&](const Places& step) {
        for (std::size_t i = step.back() + 1; i < log.collectives.size(); ++i) {
            const LoggedCollective& next = log.collectives[i];
            if (next.group == found.group) {
                const bool same = parameters < 0 || parameters == next.elements;
                parameters = next.elements;
                return same && next.kind == LoggedKind::all_reduce &&
                       (next.dtype == "Int" || next.dtype == "int");
            }
        }
        // The log ends with the step's last bucket.
        return &step == &found.steps.back() && parameters >= 0;
    });
}

void report_left_out(const CollectiveLog& log, const GradientSteps& found,
                     const Places& all_reduces, Findings& findings) {
    std::set<std::size_t> taken;
    for (const Places& step : found.steps) {
        taken.insert(step.begin(), step.end());
    }
    std::int64_t before_or_between = 0;
    for (const std::size_t place : all_reduces) {
        before_or_between += taken.contains(place) ? 0 : 1;
    }
    if (before_or_between > 0) {
        findings.missing("all-reduces",
                         "{} of gradients are in no whole step: the first iterations, steps that "
                         "are cut off, or an evaluation{}",
                         before_or_between,
                         all_reduces.size() > most_looked_at
                             ? fmt::format("; only the last {} were looked at", most_looked_at)
                             : "");
    }
    const std::set<std::size_t> known(all_reduces.begin(), all_reduces.end());
    std::map<std::string, std::size_t> others;
    for (std::size_t i = 0; i < log.collectives.size(); ++i) {
        const LoggedCollective& collective = log.collectives[i];
        const bool is_map = found.unused_map && collective.group == found.group &&
                            collective.kind == LoggedKind::all_reduce &&
                            !dtype_named(collective.dtype);
        // choose_group() has named the other groups' all-reduces.
        const bool was_named = collective.group != found.group && may_be_gradients(collective);
        if (!known.contains(i) && !is_map && !was_named) {
            ++others[fmt::format("{} of {} {}", collective.name, collective.elements,
                                 collective.dtype.empty() ? "elements" : collective.dtype)];
        }
    }
    if (others.empty()) {
        return;
    }
    // Fewer than one a step only set training up.
    const bool in_steps = std::ranges::any_of(
        others, [&](const auto& kind) { return kind.second >= found.steps.size(); });
    findings.missing("other collectives", "left out: {}", text_of_kinds(others)).weakens =
        in_steps ? Weakens::scenario : Weakens::nothing;
}

// The size up to which all-reduces are layers' (SyncBatchNorm); nothing where there are none. A
// step has at most one small bucket of each dtype, the last.
std::optional<std::int64_t> small_of_layers(const std::vector<std::int64_t>& sizes) {
    constexpr std::int64_t small_share = 100;
    constexpr std::size_t few = 2;
    const std::int64_t largest = std::ranges::max(sizes) / small_share;
    const auto small = [&](std::int64_t size) { return size <= largest; };
    return static_cast<std::size_t>(std::ranges::count_if(sizes, small)) > few
               ? std::optional(largest)
               : std::nullopt;
}

void find_in(const CollectiveLog& log, const Places& places, const GradientStepsRequest& request,
             GradientSteps& found, Findings& findings) {
    const bool marked =
        std::ranges::all_of(places, [&](std::size_t i) { return log.collectives[i].step >= 0; });
    if (marked) {
        found.steps = marked_steps(log, places);
        findings.found("steps", "{} with the same {} all-reduces, as the trace marks them",
                       found.steps.size(), found.steps.front().size());
        return;
    }
    if (log.clock != LogClock::host) {
        found.steps = {places};
        findings
            .assumed("steps", "nothing marks steps: the trace is taken for one, of {} all-reduces",
                     places.size())
            .weakens = Weakens::scenario;
        return;
    }
    const IssuedAllReduces issued = issued_of(log, found.group, places);
    const RepeatedSteps repeated = find_steps(issued, request.elements);
    if (repeated.length == 0) {
        throw InputError(log.file, "",
                         "two whole steps of the same all-reduces (a larger TORCH_FR_BUFFER_SIZE "
                         "holds more)",
                         fmt::format("{} all-reduces that do not repeat so", places.size()));
    }
    for (const std::size_t begin : repeated.begins) {
        const auto first = places.begin() + static_cast<std::ptrdiff_t>(begin);
        found.steps.emplace_back(first, first + static_cast<std::ptrdiff_t>(repeated.length));
        const std::size_t next = begin + repeated.length;
        const bool follows = next < places.size() && issued.sizes[next] == issued.sizes[begin];
        found.next.push_back(follows ? std::optional(places[next]) : std::nullopt);
    }
    const std::vector<Duration> periods = periods_of(log, found);
    if (periods.empty()) {
        throw InputError(log.file, "", "two steps, one after the other", "one");
    }
    const auto [shortest, longest] = std::ranges::minmax(periods);
    findings.found("steps",
                   "{} whole ones of {} all-reduces{}; from one to the next {:.3f} ms (median), "
                   "{:.3f} to {:.3f}",
                   found.steps.size(), repeated.length, text_of(repeated), to_ms(median(periods)),
                   to_ms(shortest), to_ms(longest));
}

}  // namespace

std::vector<Duration> periods_of(const CollectiveLog& log, const GradientSteps& steps) {
    std::vector<Duration> periods;
    for (std::size_t i = 0; i < steps.next.size(); ++i) {
        if (steps.next[i]) {
            periods.push_back(*log.collectives[*steps.next[i]].issued -
                              *log.collectives[steps.steps[i].front()].issued);
        }
    }
    return periods;
}

std::optional<GradientSteps> same_steps(const CollectiveLog& log, const GradientSteps& steps,
                                        const CollectiveLog& other) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> places;
    for (std::size_t i = 0; i < other.collectives.size(); ++i) {
        const LoggedCollective& collective = other.collectives[i];
        if (may_be_gradients(collective) && collective.group == steps.group &&
            collective.sequence >= 0) {
            places[collective.number()] = i;
        }
    }
    const auto place_of = [&](std::size_t place) -> std::optional<std::size_t> {
        const auto found = places.find(log.collectives[place].number());
        const bool same = found != places.end() && other.collectives[found->second].elements ==
                                                       log.collectives[place].elements;
        return same ? std::optional(found->second) : std::nullopt;
    };
    GradientSteps result{
        .group = steps.group, .group_size = steps.group_size, .unused_map = steps.unused_map};
    for (std::size_t i = 0; i < steps.steps.size(); ++i) {
        Places step;
        for (const std::size_t place : steps.steps[i]) {
            if (const auto found = place_of(place)) {
                step.push_back(*found);
            }
        }
        if (step.size() == steps.steps[i].size()) {
            result.steps.push_back(std::move(step));
            result.next.push_back(i < steps.next.size() && steps.next[i] ? place_of(*steps.next[i])
                                                                         : std::nullopt);
        }
    }
    return result.steps.empty() ? std::nullopt : std::optional(std::move(result));
}

std::vector<std::int64_t> elements_of(const CollectiveLog& log, const GradientSteps& steps) {
    return sizes_of(log, steps.steps.front());
}

GradientSteps gradient_steps(const CollectiveLog& log, const GradientStepsRequest& request,
                             Findings& findings) {
    if (!request.group) {
        refuse_sharded(log);
    }
    GradientSteps found;
    found.group = choose_group(log, request, findings);
    Places places = all_reduces_of(log, found.group, most_of_scalars);
    if (places.empty()) {
        places = all_reduces_of(log, found.group, 0);
    }
    found.group_size = log.collectives[places.front()].group_size;
    Findings of_steps;
    find_in(log, places, request, found, of_steps);
    if (const auto small = small_of_layers(elements_of(log, found))) {
        places = all_reduces_of(log, found.group, *small);
        found.steps.clear();
        found.next.clear();
        of_steps = {};
        of_steps.assumed("small all-reduces",
                         "those of up to {} elements, several a step, are not the gradients' but "
                         "layers' (SyncBatchNorm): left out",
                         *small);
        find_in(log, places, request, found, of_steps);
    }
    findings.all.insert(findings.all.end(), of_steps.all.begin(), of_steps.all.end());
    found.unused_map = has_unused_map(log, found);
    if (found.unused_map) {
        findings.found("unused parameters",
                       "an all-reduce of one number per gradient: find_unused_parameters, which "
                       "keeps the buckets of the first iteration");
    }
    report_left_out(log, found, places, findings);
    return found;
}

}  // namespace bucketwise
