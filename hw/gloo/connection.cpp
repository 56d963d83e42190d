#include "hw/gloo/connection.h"

#include <gloo/config.h>
#include <gloo/rendezvous/context.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <vector>

#include <fmt/format.h>

#include "hw/gloo/gloo_communicator.h"
#include "hw/gloo/meeting/device.h"
#include "hw/gloo/meeting/gloo_control_group.h"
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

// Ranks that are connected, and what they exchange by each implementation.
struct GlooConnection::ConnectedRanks {
    ConnectedRanks(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds deadline)
        : group(std::move(context), deadline) {}

    GlooGroup group;
    // By AllReduceImplementation.
    std::array<GlooCommunicator, 3> communicators{
        {{group, {library_all_reduce, ring_reduce_scatter, library_all_gather}},
         {group, {ring_all_reduce, ring_reduce_scatter, ring_all_gather}},
         {group, {direct_all_reduce, direct_reduce_scatter, direct_all_gather}}}};

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
