#include "sim/link/network/chunk_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/link/network/event_queue.h"
#include "sim/link/network/fair_share.h"

namespace bucketwise {
namespace {

// Events carry an actor and a step, or a flow and how often its rate had changed.
constexpr std::uint32_t flow_bit = 1U << 31;

constexpr std::uint32_t not_shared = UINT32_MAX;

struct Connection {
    Duration busy_until{0};
    Duration latency{0};
    BytesPerSecond rate;                // alone
    std::uint32_t shared = not_shared;  // index into shared connections
    // The last size and how long it took: nearly all messages of a connection are alike.
    Bytes known_bytes{-1};
    Duration known_time{0};
};

struct WaitingMessage {
    std::uint32_t actor = 0;
    std::uint32_t step = 0;
    Bytes bytes;
};

// A connection whose links others cross as well.
struct SharedConnection {
    std::uint32_t connection = 0;
    std::vector<std::int32_t> links;      // those that may be short
    std::vector<WaitingMessage> waiting;  // the first one moves
    std::uint32_t flow = 0;
    std::uint32_t generation = 0;
    double left_bytes = 0;
    double rate = 0;
    Duration since{0};
};

struct Actor {
    std::uint32_t step = 0;
    std::uint32_t received = 0;
};

class ChunkEngine {
  public:
    ChunkEngine(const Topology& topology, const Network& network,
                const std::vector<CollectiveJob>& requests)
        : network_(network), shares_(transformed(network.links(), &DirectedLink::bandwidth)) {
        for (const CollectiveJob& request : requests) {
            add_job(request);
        }
        connect(topology.background);
        run_background(topology.background);
    }

    CollectiveRun run(std::uint64_t most_sharing) {
        for (Job& job : jobs_) {
            start(job);
        }
        const bool shares = !shared_.empty();
        while (jobs_left_ > 0) {
            if (shares) {
                share_out_if_due();
                if (shares_.shared_out() > most_sharing) {
                    result_.complete = false;
                    break;
                }
            }
            invariant(!queue_.empty(), "a collective that has not ended has a message in flight");
            const QueuedEvent event = queue_.pop();
            now_ = event.time;
            if ((event.subject & flow_bit) != 0) {
                flow_ends(event.subject & ~flow_bit, event.detail);
            } else {
                receive(event.subject, event.detail);
            }
        }
        for (Job& job : jobs_) {
            const Duration end = *std::max_element(job.finish.begin(), job.finish.end());
            result_.jobs.push_back({end, std::move(job.finish)});
        }
        result_.memory_bytes = memory_bytes();
        return std::move(result_);
    }

  private:
    struct Job {
        CollectiveJob request;  // its repetitions are those that are left
        CollectiveSchedule schedule;
        std::uint32_t first_actor = 0;
        std::uint32_t first_connection = 0;
        std::uint32_t actors_left = 0;
        std::vector<Duration> finish = {};  // by rank
    };

    void add_job(const CollectiveJob& request) {
        Job job{.request = request,
                .schedule = CollectiveSchedule(request.schedule),
                .first_actor = static_cast<std::uint32_t>(actors_.size()),
                .first_connection = static_cast<std::uint32_t>(connections_.size())};
        for (const Endpoints& pair : job.schedule.connections()) {
            endpoints_.push_back({place(job, pair.from), place(job, pair.to)});
        }
        connections_.resize(endpoints_.size());
        actors_.resize(actors_.size() + job.schedule.actors());
        invariant(actors_.size() < flow_bit, "actors fit an event");
        jobs_left_ += request.repetitions > 0 ? 1 : 0;
        jobs_.push_back(std::move(job));
    }

    static std::int64_t place(const Job& job, std::int64_t rank) {
        const std::vector<std::int64_t>& placement = job.request.placement;
        return placement.empty() ? rank : placement[static_cast<std::size_t>(rank)];
    }

    // Finds the way of every connection, and which links could be short of bandwidth: those that
    // several connections cross which together could ask for more than there is.
    void connect(const std::vector<BackgroundFlow>& background) {
        const std::size_t count = connections_.size();
        for (const BackgroundFlow& flow : background) {
            endpoints_.push_back({flow.from, flow.to});
        }
        std::vector<Route> routes;
        std::vector<double> asked(network_.links().size(), 0);
        std::vector<std::uint32_t> crossing(network_.links().size(), 0);
        for (std::size_t i = 0; i < endpoints_.size(); ++i) {
            const auto& [from, to] = endpoints_[i];
            routes.push_back(from == to ? Route{} : network_.route(from, to));
            BytesPerSecond narrowest{std::numeric_limits<std::int64_t>::max()};
            Duration latency{0};
            for (const std::int32_t link : routes.back()) {
                const DirectedLink& crossed = network_.links()[static_cast<std::size_t>(link)];
                narrowest = std::min(narrowest, crossed.bandwidth);
                latency += crossed.latency;
            }
            if (i < count) {
                connections_[i].rate = narrowest;
                connections_[i].latency = latency;
            } else {
                narrowest = std::min(narrowest, background[i - count].bandwidth);
            }
            for (const std::int32_t link : routes.back()) {
                asked[static_cast<std::size_t>(link)] += static_cast<double>(narrowest.count);
                ++crossing[static_cast<std::size_t>(link)];
            }
        }
        const auto can_be_short = [&](std::int32_t link) {
            const auto i = static_cast<std::size_t>(link);
            return crossing[i] > 1 &&
                   asked[i] > static_cast<double>(network_.links()[i].bandwidth.count);
        };
        for (std::size_t i = 0; i < routes.size(); ++i) {
            SharedConnection shared;
            shared.connection = static_cast<std::uint32_t>(i);
            std::copy_if(routes[i].begin(), routes[i].end(), std::back_inserter(shared.links),
                         can_be_short);
            if (!shared.links.empty()) {
                if (i < count) {
                    connections_[i].shared = static_cast<std::uint32_t>(shared_.size());
                }
                shared_.push_back(std::move(shared));
            }
        }
    }

    void run_background(const std::vector<BackgroundFlow>& background) {
        for (const SharedConnection& shared : shared_) {
            if (shared.connection >= connections_.size()) {
                const BackgroundFlow& flow = background[shared.connection - connections_.size()];
                shares_.add(shared.links, static_cast<double>(flow.bandwidth.count));
            }
        }
        flow_owner_.assign(background.size(), not_shared);
    }

    void start(Job& job) {
        job.actors_left = job.schedule.actors();
        job.finish.assign(static_cast<std::size_t>(job.schedule.ranks()), Duration{0});
        for (std::uint32_t i = 0; i < job.schedule.actors(); ++i) {
            actors_[job.first_actor + i] = {};
            const auto rank = static_cast<std::size_t>(job.schedule.rank_of(i));
            const std::vector<Duration>& starts = job.request.starts;
            const Duration at = starts.empty() ? Duration{0} : starts[rank];
            queue_.push(std::max(now_, at), job.first_actor + i, 0);
        }
    }

    Job& job_of(std::uint32_t actor) {
        std::size_t i = jobs_.size() - 1;
        while (jobs_[i].first_actor > actor) {
            --i;
        }
        return jobs_[i];
    }

    // A message for this step of an actor has arrived; one that is early waits.
    void receive(std::uint32_t actor, std::uint32_t step) {
        Job& job = job_of(actor);
        Actor& state = actors_[actor];
        if (step != state.step) {
            ++early_[(std::uint64_t{actor} << 32U) | step];
            return;
        }
        const std::uint32_t own = actor - job.first_actor;
        ++state.received;
        const std::uint32_t steps = job.schedule.steps(own);
        while (state.received >= job.schedule.needs(own, state.step)) {
            job.schedule.sends(own, state.step,
                               [&](const ChunkMessage& message) { send(job, message); });
            ++state.step;
            if (state.step == steps) {
                return finish(job, own);
            }
            state.received = early_.empty() ? 0 : take_early(actor, state.step);
        }
    }

    std::uint32_t take_early(std::uint32_t actor, std::uint32_t step) {
        const auto found = early_.extract((std::uint64_t{actor} << 32U) | step);
        return found ? found.mapped() : 0;
    }

    void finish(Job& job, std::uint32_t actor) {
        Duration& finish = job.finish[static_cast<std::size_t>(job.schedule.rank_of(actor))];
        finish = std::max(finish, now_);
        --job.actors_left;
        if (job.actors_left > 0) {
            return;
        }
        if (job.request.repetitions == 1) {
            --jobs_left_;
        } else {
            job.request.repetitions -= job.request.repetitions == 0 ? 0 : 1;
            start(job);
        }
    }

    // Inlined into what every message runs through: calling it costs a tenth of that.
    [[gnu::always_inline]] void send(const Job& job, const ChunkMessage& message) {
        const std::uint32_t actor = job.first_actor + message.actor;
        if (message.connection == no_connection) {
            return queue_.push(now_, actor, message.step);
        }
        ++result_.messages;
        Connection& connection = connections_[job.first_connection + message.connection];
        if (connection.shared != not_shared) {
            return enqueue(shared_[connection.shared], {actor, message.step, message.bytes});
        }
        if (message.bytes != connection.known_bytes) {
            connection.known_bytes = message.bytes;
            connection.known_time = transfer_time(message.bytes, connection.rate);
        }
        // Nothing lasts longer, however often it is added up.
        connection.busy_until = std::min(
            std::max(now_, connection.busy_until) + connection.known_time, longest_duration);
        queue_.push(std::min(connection.busy_until + connection.latency, longest_duration), actor,
                    message.step);
    }

    // --- shared links ---

    void enqueue(SharedConnection& shared, const WaitingMessage& message) {
        shared.waiting.push_back(message);
        if (shared.waiting.size() == 1) {
            start_flow(shared);
        }
    }

    void start_flow(SharedConnection& shared) {
        const Connection& connection = connections_[shared.connection];
        shared.left_bytes = static_cast<double>(shared.waiting.front().bytes.count);
        shared.rate = 0;
        shared.since = now_;
        shared.flow = shares_.add(shared.links, static_cast<double>(connection.rate.count));
        if (flow_owner_.size() <= shared.flow) {
            flow_owner_.resize(shared.flow + std::size_t{1}, not_shared);
        }
        flow_owner_[shared.flow] = connection.shared;
    }

    // Once all that happens at this moment has happened.
    void share_out_if_due() {
        if (!shares_.is_due() || (!queue_.empty() && queue_.next_time() == now_)) {
            return;
        }
        for (const std::uint32_t flow : shares_.share_out()) {
            if (flow_owner_[flow] == not_shared) {
                continue;  // background never ends
            }
            SharedConnection& shared = shared_[flow_owner_[flow]];
            const double seconds = static_cast<double>((now_ - shared.since).count()) * 1e-12;
            shared.left_bytes = std::max(shared.left_bytes - seconds * shared.rate, 0.0);
            shared.since = now_;
            shared.rate = shares_.rate(flow);
            // Rounded to the nearest picosecond; to the next one, rounding would add up.
            const double picoseconds = std::round(shared.left_bytes / shared.rate * 1e12);
            const double most = static_cast<double>(longest_duration.count());
            const Duration left{static_cast<std::int64_t>(std::min(picoseconds, most))};
            queue_.push(std::min(now_ + left, longest_duration), flow_owner_[flow] | flow_bit,
                        ++shared.generation);
        }
    }

    void flow_ends(std::uint32_t index, std::uint32_t generation) {
        SharedConnection& shared = shared_[index];
        if (generation != shared.generation) {
            return;  // its rate has changed since
        }
        const WaitingMessage message = shared.waiting.front();
        shared.waiting.erase(shared.waiting.begin());
        shares_.remove(shared.flow);
        queue_.push(std::min(now_ + connections_[shared.connection].latency, longest_duration),
                    message.actor, message.step);
        if (!shared.waiting.empty()) {
            start_flow(shared);
        }
    }

    [[nodiscard]] std::size_t memory_bytes() const {
        return queue_.capacity_bytes() + connections_.size() * sizeof(Connection) +
               endpoints_.size() * sizeof(Endpoints) + actors_.size() * sizeof(Actor) +
               network_.links().size() * sizeof(DirectedLink) + shares_.memory_bytes() +
               shared_.size() * sizeof(SharedConnection);
    }

    const Network& network_;
    std::vector<Job> jobs_;
    std::size_t jobs_left_ = 0;  // of those that end
    std::vector<Actor> actors_;
    std::vector<Connection> connections_;
    std::vector<Endpoints> endpoints_;  // by connection, then of background flows
    std::vector<SharedConnection> shared_;
    FairShare shares_;
    std::vector<std::uint32_t> flow_owner_;                   // by flow: index into shared_
    std::unordered_map<std::uint64_t, std::uint32_t> early_;  // by actor and step
    EventQueue queue_;
    Duration now_{0};
    CollectiveRun result_;
};

}  // namespace

CollectiveRun simulate_collectives(const Topology& topology, const Network& network,
                                   const std::vector<CollectiveJob>& jobs,
                                   std::uint64_t most_sharing) {
    const bool ends = std::any_of(jobs.begin(), jobs.end(),
                                  [](const CollectiveJob& job) { return job.repetitions > 0; });
    invariant(ends, "one of the jobs ends");
    return ChunkEngine(topology, network, jobs).run(most_sharing);
}

}  // namespace bucketwise
