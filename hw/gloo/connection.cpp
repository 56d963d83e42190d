#include "hw/gloo/connection.h"

#include <gloo/barrier.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/rendezvous/context.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "hw/gloo/gloo_collectives.h"
#include "hw/gloo/meeting/device.h"
#include "hw/gloo/meeting/group.h"
#include "hw/gloo/meeting/store.h"
#include "hw/launch/processor_affinity.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

std::string arrival_key(int rank) {
    return "arrived/" + std::to_string(rank);
}

// "rank 3", "ranks 1, 2 and 7", "ranks 1, 2, 3, 4, 5 and 12 more".
std::string listed(const std::vector<int>& ranks) {
    constexpr std::size_t most = 8;
    const std::size_t shown = std::min(ranks.size(), most);
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < shown; ++i) {
        const bool last = i + 1 == ranks.size();
        text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > most ? text + " and " + std::to_string(ranks.size() - most) + " more"
                               : text;
}

void announce(const MeetingPoint& meeting, JobStore& store) {
    if (store.has(arrival_key(meeting.rank))) {
        throw std::runtime_error(
            meeting.store + ": rank " + std::to_string(meeting.rank) + " of job \"" + meeting.job +
            "\" has been here already: it holds keys of an earlier run. Use an empty store or " +
            "another job name");
    }
    store.set(arrival_key(meeting.rank), {'1'});
}

// Gloo's own waiting would end with the name of a key.
void wait_for_all(const MeetingPoint& meeting, JobStore& store) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < meeting.ranks; ++rank) {
        keys.push_back(arrival_key(rank));
    }
    const std::vector<std::string> missing = store.missing_at_deadline(keys);
    std::vector<int> ranks;
    for (int rank = 0; rank < meeting.ranks; ++rank) {
        if (std::find(missing.begin(), missing.end(), arrival_key(rank)) != missing.end()) {
            ranks.push_back(rank);
        }
    }
    if (!ranks.empty()) {
        throw PeerFailure(meeting.store + ": " + listed(ranks) + " of " +
                          std::to_string(meeting.ranks) + " did not arrive within " +
                          std::to_string(meeting.deadline.count()) + " ms");
    }
}

// Gloo multiplies a context's timeout by this while it connects.
constexpr int connect_factor = 5;

std::shared_ptr<gloo::Context> connect(const MeetingPoint& meeting, JobStore store,
                                       std::shared_ptr<gloo::transport::Device> device) {
    const auto context = std::make_shared<gloo::rendezvous::Context>(meeting.rank, meeting.ranks);
    context->setTimeout(std::max(meeting.deadline / connect_factor, std::chrono::milliseconds{1}));
    with_peer_failures("rank " + std::to_string(meeting.rank) + " could not connect to the others",
                       [&] { context->connectFullMesh(store, device); });
    context->setTimeout(meeting.deadline);
    return context;
}

// Writing to a peer that is gone raises SIGPIPE, which would end the process without a word; Gloo
// does not prevent it. Ignored, the write fails and Gloo reports the peer. A handler that somebody
// else has set stays.
void ignore_broken_pipes() {
    struct sigaction current {};
    if (::sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
        std::signal(SIGPIPE, SIG_IGN);
    }
}

void check(const MeetingPoint& meeting) {
    if (meeting.ranks < 1 || meeting.rank < 0 || meeting.rank >= meeting.ranks) {
        throw InputError("rank", "", "a rank below the number of ranks",
                         std::to_string(meeting.rank) + " of " + std::to_string(meeting.ranks));
    }
    if (meeting.deadline < std::chrono::milliseconds{1}) {
        throw InputError("deadline", "", "at least 1 ms",
                         std::to_string(meeting.deadline.count()) + " ms");
    }
}

}  // namespace

// Collectives of one implementation. `group` outlives it.
class GlooCommunicator final : public Communicator {
  public:
    GlooCommunicator(GlooGroup& group, const GlooCollectives& collectives)
        : group_(group), collectives_(collectives) {}

    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int ranks() const override { return group_.ranks(); }

    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        if (ranks() > 1 && elements > 0) {
            collectives_.all_reduce(group_, scratch_, data, elements, dtype);
        }
    }

    void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) override {
        if (ranks() > 1 && elements > 0) {
            collectives_.reduce_scatter(group_, scratch_, data, ranks() * elements, dtype);
        }
    }

    void all_gather(const void* own, void* all, Bytes size) override {
        if (size.count == 0) {
            return;
        }
        char* const place = static_cast<char*>(all) + rank() * size.count;
        if (own != place) {
            std::memcpy(place, own, static_cast<std::size_t>(size.count));
        }
        if (ranks() > 1) {
            collectives_.all_gather(group_, all, ranks() * size.count);
        }
    }

    void broadcast_from_first(void* data, Bytes size) override {
        group_.broadcast_from_first(static_cast<char*>(data), size.count);
    }

  private:
    GlooGroup& group_;
    GlooCollectives collectives_;
    Scratch scratch_;
};

// Over a context of its own. `group` outlives it and is used by nobody else.
class GlooControlGroup final : public ControlGroup {
  public:
    explicit GlooControlGroup(GlooGroup& group) : group_(group) {}

    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int ranks() const override { return group_.ranks(); }

    void barrier() override {
        if (ranks() > 1) {
            gloo::BarrierOptions options(group_.context());
            group_.collective("barrier", options, gloo::barrier);
        }
    }

    void broadcast_from_first(std::span<std::int64_t> values) override {
        group_.broadcast_from_first(values.data(), std::ssize(values));
    }

    std::vector<double> gather_to_first(std::span<const double> values) override {
        std::vector<double> own(values.begin(), values.end());  // Gloo asks for writable memory
        if (ranks() == 1 || values.empty()) {
            return own;
        }
        std::vector<double> all(rank() == 0 ? values.size() * static_cast<std::size_t>(ranks())
                                            : 0);
        gloo::GatherOptions options(group_.context());
        options.setInput(own.data(), own.size());
        if (rank() == 0) {
            options.setOutput(all.data(), all.size());
        }
        options.setRoot(0);
        group_.collective("gather", options, gloo::gather);
        return all;
    }

  private:
    GlooGroup& group_;
};

// Ranks that are connected, and what they exchange by each implementation.
struct GlooConnection::ConnectedRanks {
    ConnectedRanks(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds deadline)
        : group(std::move(context), deadline) {}

    GlooGroup group;
    // By AllReduceImplementation.
    std::array<GlooCommunicator, 3> communicators{
        {{group, library_collectives}, {group, ring_collectives}, {group, direct_collectives}}};

    Communicator& by(AllReduceImplementation implementation) {
        return communicators[static_cast<std::size_t>(implementation)];
    }
};

struct GlooConnection::State {
    State(const MeetingPoint& meeting_point,
          std::shared_ptr<gloo::transport::Device> listening_device,
          std::shared_ptr<gloo::Context> data_context,
          std::shared_ptr<gloo::Context> control_context)
        : meeting(meeting_point),
          device(std::move(listening_device)),
          data(std::move(data_context), meeting_point.deadline),
          own(std::move(control_context), meeting_point.deadline) {}

    MeetingPoint meeting;
    std::shared_ptr<gloo::transport::Device> device;
    ConnectedRanks data;
    GlooGroup own;  // of the control group
    GlooControlGroup control{own};
    std::vector<std::unique_ptr<ConnectedRanks>> others;  // of some ranks, as they were asked for
};

GlooConnection::GlooConnection(const MeetingPoint& meeting) {
    check(meeting);
    const auto deadline = std::chrono::steady_clock::now() + meeting.deadline;
    auto device = [&] {
        const ProcessorLimit limit = ProcessorLimit::for_transport(meeting.rank);
        return open_device(meeting.address, meeting.interface);  // starts the transport's thread
    }();
    const std::unique_ptr<KeyValueStore> store = open_store(meeting.store);
    JobStore job(*store, meeting.job + "/", deadline);
    announce(meeting, job);
    std::shared_ptr<gloo::Context> data;
    std::shared_ptr<gloo::Context> control;
    if (meeting.ranks > 1) {
        ignore_broken_pipes();
        wait_for_all(meeting, job);
        data = connect(meeting, JobStore(*store, meeting.job + "/data/", deadline), device);
        control = connect(meeting, JobStore(*store, meeting.job + "/control/", deadline), device);
    }
    state_ =
        std::make_unique<State>(meeting, std::move(device), std::move(data), std::move(control));
    // One side of a connection may be done while the other is not. Whoever returns from here can
    // leave at once without harm to those who are still connecting.
    state_->control.barrier();
    // All have met, so nobody needs the keys, and the next run can use the same store.
    store->forget_own_keys();
}

GlooConnection::~GlooConnection() = default;

Communicator& GlooConnection::communicator_among(const std::vector<std::int64_t>& ranks,
                                                 AllReduceImplementation implementation) {
    MeetingPoint meeting = state_->meeting;
    const auto deadline = std::chrono::steady_clock::now() + meeting.deadline;
    const auto own = std::ranges::find(ranks, meeting.rank);
    invariant(own != ranks.end(), "a group that this rank is in");
    const std::unique_ptr<KeyValueStore> store = open_store(meeting.store);
    std::shared_ptr<gloo::Context> context;
    if (ranks.size() > 1) {
        meeting.rank = static_cast<int>(own - ranks.begin());
        meeting.ranks = static_cast<int>(ranks.size());
        const std::string keys =
            fmt::format("{}/group {} of {}/", meeting.job, state_->others.size(), ranks.front());
        context = connect(meeting, JobStore(*store, keys, deadline), state_->device);
    }
    state_->others.push_back(
        std::make_unique<ConnectedRanks>(std::move(context), meeting.deadline));
    state_->control.barrier();  // as when all have met
    store->forget_own_keys();
    return state_->others.back()->by(implementation);
}

Communicator& GlooConnection::communicator(AllReduceImplementation implementation) {
    return state_->data.by(implementation);
}

ControlGroup& GlooConnection::control() {
    return state_->control;
}

std::string gloo_version() {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
           "." + std::to_string(GLOO_VERSION_PATCH);
}

}  // namespace bucketwise
