// FSDP2's rules as moments of streams, in the order that PyTorch's hooks touch them, against the
// program and the engine. The test shares only the input with the code that it checks.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/engine/step_loop.h"
#include "tests/catch.h"
#include "tests/sim/sharding/random_sharded_step.h"

namespace bucketwise {
namespace {

using Ps = std::int64_t;

class Recurrence {
  public:
    Recurrence(const StepInput& input, const ShardingRequest& request)
        : input_(input), request_(request), p_(input.group.ranks) {
        const std::string root = "root";
        group_of_module_["embedding"] = group_of_module_["head"] = 0;
        count_blocks();
        for (int block = 0; block < blocks_; ++block) {
            const std::int64_t together = request.layers_per_group;
            group_of_module_["layers." + std::to_string(block)] =
                together == 0 ? 0 : 1 + static_cast<int>(block / together);
        }
        for (const auto& [module, group] : group_of_module_) {
            groups_ = std::max(groups_, group + 1);
        }
        for (std::vector<std::int64_t>* bytes :
             {&gathered_bytes_, &reduced_bytes_, &gradient_bytes_, &own_bytes_, &kept_bytes_}) {
            bytes->resize(static_cast<std::size_t>(groups_));
        }
        for (const Gradient& parameter : input.workload.gradients) {
            add(parameter);
        }
    }

    Ps step() {
        Ps end = 0;
        for (std::int64_t i = 0; i < input_.step.accumulation; ++i) {
            micro_step_ = i;
            end = micro_step();
        }
        compute_ = std::max(compute_, on_host(0)) + input_.step.optimizer.count();
        static_cast<void>(end);
        return compute_;
    }

  private:
    struct Gathering {
        std::optional<Ps> end;  // none: not asked for
        bool unsharded = false;
    };

    // --- sizes ---

    void count_blocks() {
        for (const TimedOperation& operation : input_.workload.forward) {
            if (operation.name.rfind("layers.", 0) == 0) {
                blocks_ = std::max(blocks_, std::stoi(operation.name.substr(7)) + 1);
            }
        }
    }
    static std::int64_t size(DType dtype) { return dtype == DType::float32 ? 4 : 2; }
    [[nodiscard]] DType computed() const {
        return request_.parameter_dtype.value_or(DType::float32);
    }
    [[nodiscard]] DType reduced() const {
        return request_.reduce_dtype.value_or(request_.reduces_in_own_dtype ? DType::float32
                                                                            : computed());
    }
    [[nodiscard]] std::int64_t size_of_gradients() const {
        return std::min(size(computed()), size(reduced()));
    }

    void add(const Gradient& parameter) {
        const auto group = static_cast<std::size_t>(group_of(parameter.name));
        const std::int64_t padded =
            (parameter.rows + p_ - 1) / p_ * p_ * (parameter.numel / parameter.rows);
        gathered_bytes_[group] += padded * size(computed());
        reduced_bytes_[group] += padded * size(reduced());
        own_bytes_[group] += padded / p_ * 4;
        gradient_bytes_[group] += parameter.numel * size_of_gradients();
        kept_bytes_[group] += parameter.numel * size(reduced());
    }
    [[nodiscard]] int group_of(const std::string& name) const {
        const std::size_t end = name.rfind(".linear");
        return group_of_module_.at(name.substr(0, end));
    }

    // --- costs ---

    [[nodiscard]] Ps collective(std::int64_t bytes) const {
        return input_.link.launch.count() +
               (p_ - 1) * (input_.link.segments.front().latency.count() + bytes / p_ * 1000);
    }
    [[nodiscard]] Ps copy(std::int64_t bytes) const {
        return input_.copy_bandwidth ? input_.copy_fixed.count() + bytes * 1000 : 0;
    }
    [[nodiscard]] Ps copy_launch() const {
        return input_.copy_bandwidth ? input_.workload.copy_launch.count() : 0;
    }

    // --- streams ---

    Ps on_host(Ps time) { return host_ += time; }
    // On the compute stream, as soon as the host has issued it.
    void compute(Ps host, Ps device) { compute_ = std::max(compute_, on_host(host)) + device; }
    void copy_computing(std::int64_t bytes) {
        if (input_.copy_bandwidth) {
            compute(copy_launch(), copy(bytes));
        }
    }
    Ps communicate(Ps ready, Ps time) {
        return communicator_ = std::max(communicator_, ready) + time;
    }

    // --- FSDPParamGroup ---

    void unshard(int group) {
        Gathering& gathering = state_[group];
        if (gathering.unsharded || gathering.end) {
            return;
        }
        const std::size_t g = static_cast<std::size_t>(group);
        const std::int64_t sent = gathered_bytes_[g] / p_;
        const std::int64_t copied =
            sent + (computed() == DType::float32 ? 0 : (own_bytes_[g] + sent) / 2);
        if (request_.asynchronous_unshard) {
            copy_computing(copied);
            gathering.end = communicate(std::max(compute_, on_host(input_.link.host_issue.count())),
                                        collective(gathered_bytes_[g]));
            return;
        }
        const Ps issued = on_host(input_.link.host_issue.count() + copy_launch());
        gathering.end = communicate(std::max(issued, gather_streams_) + copy(copied),
                                    collective(gathered_bytes_[g]));
    }

    void wait_for_unshard(int group, bool forward) {
        Gathering& gathering = state_[group];
        if (!gathering.end) {
            return;
        }
        if (forward) {
            gather_streams_ = std::max(gather_streams_, copied_out_);
        }
        compute(input_.link.host_wait.count(), 0);
        compute_ = std::max(compute_, *gathering.end);
        copy_computing(gathered_bytes_[static_cast<std::size_t>(group)]);
        gathering = {std::nullopt, true};
        copied_out_ = compute_;
        if (!forward || request_.asynchronous_unshard) {
            gather_streams_ = std::max(gather_streams_, copied_out_);
        }
    }

    void post_backward(int group) {
        const std::size_t g = static_cast<std::size_t>(group);
        const bool last = micro_step_ + 1 == input_.step.accumulation;
        if (last || request_.reshard_after_backward) {
            state_[group].unsharded = false;
        }
        if (!last && request_.gradient_sync == MicroSteps::last) {
            return;
        }
        while (static_cast<std::int64_t>(reducing_.size()) >= request_.reduce_scatter_buffers) {
            compute(input_.link.host_wait.count(), 0);
            compute_ = std::max(compute_, reducing_.front());
            reducing_.erase(reducing_.begin());
        }
        const bool accumulated = micro_step_ > 0 && request_.gradient_sync == MicroSteps::last;
        copy_computing(((accumulated ? kept_bytes_ : gradient_bytes_)[g] + reduced_bytes_[g]) / 2);
        const Ps end = communicate(std::max(compute_, on_host(input_.link.host_issue.count())),
                                   collective(reduced_bytes_[g]));
        reducing_.push_back(end + placing(g));
    }

    // The cast, and the sum with what is there, of a shard.
    [[nodiscard]] Ps placing(std::size_t group) const {
        const std::int64_t reduced_shard = reduced_bytes_[group] / p_;
        std::int64_t bytes =
            reduced() == DType::float32 ? 0 : (reduced_shard + own_bytes_[group]) / 2;
        if (micro_step_ > 0 && request_.gradient_sync == MicroSteps::every) {
            bytes += own_bytes_[group] * 3 / 2;
        }
        return bytes > 0 ? copy(bytes) : 0;
    }

    // --- a micro-step ---

    // Groups and their operations in the order of a pass. Backward has a checkpointed block's
    // forward before the block's own.
    struct Visit {
        int group = 0;
        std::size_t first = 0;
        std::size_t end = 0;
    };
    [[nodiscard]] std::vector<Visit> visits(const std::vector<TimedOperation>& operations) const {
        std::vector<Visit> visits;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const int group = group_of(operations[i].name);
            if (visits.empty() || visits.back().group != group) {
                visits.push_back({group, i, i});
            }
            visits.back().end = i + 1;
        }
        return visits;
    }

    void run(const std::vector<TimedOperation>& operations, std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) {
            compute(operations[i].host.count(), operations[i].device.count());
        }
    }

    Ps micro_step() {
        const std::vector<Visit> all = visits(input_.workload.forward);
        const std::vector<Visit> backwards = visits(input_.workload.backward);
        order_.clear();
        gather_streams_ = compute_;
        // The root's pre-forward; all of it is within the root's.
        unshard(0);
        wait_for_unshard(0, true);
        for (std::size_t v = 0; v < all.size(); ++v) {
            if (all[v].group != 0) {
                unshard(all[v].group);
                wait_for_unshard(all[v].group, true);
                std::int64_t left = request_.forward_prefetch;
                for (std::size_t next = v + 1; next < all.size() && left > 0; ++next) {
                    if (all[next].group != 0) {
                        unshard(all[next].group);
                        --left;
                    }
                }
            }
            run(input_.workload.forward, all[v].first, all[v].end);
            if (all[v].group != 0) {
                state_[all[v].group].unsharded = !request_.reshard_after_forward;
                order_.push_back(all[v].group);
            }
        }
        state_[0].unsharded = !request_.reshard_root;
        order_.push_back(0);
        gather_streams_ = std::max(gather_streams_, copied_out_);
        // Backward mirrors it.
        pre_backward(0, order_.size() - 1, 1);
        std::size_t place = order_.size() - 1;
        for (std::size_t v = all.size(); v-- > 0;) {
            if (all[v].group != 0) {
                pre_backward(all[v].group, --place, request_.backward_prefetch);
            }
            const Visit& mirrored = backwards.at(all.size() - 1 - v);
            run(input_.workload.backward, mirrored.first, mirrored.end);
            if (all[v].group != 0) {
                post_backward(all[v].group);
            }
        }
        post_backward(0);
        if (!reducing_.empty()) {
            compute(input_.link.host_wait.count(), 0);
            compute_ = std::max(compute_, reducing_.back());
            reducing_.clear();
        }
        return compute_;
    }

    void pre_backward(int group, std::size_t place, std::int64_t ahead) {
        unshard(group);
        wait_for_unshard(group, false);
        for (std::size_t back = 1; back <= static_cast<std::size_t>(ahead) && back <= place;
             ++back) {
            unshard(order_[place - back]);
        }
    }

    const StepInput& input_;
    const ShardingRequest& request_;
    std::int64_t p_;
    std::map<std::string, int> group_of_module_;
    int blocks_ = 0;
    int groups_ = 0;
    std::vector<std::int64_t> gathered_bytes_, reduced_bytes_, gradient_bytes_, own_bytes_,
        kept_bytes_;
    std::map<int, Gathering> state_;
    std::vector<int> order_;
    std::vector<Ps> reducing_;
    std::int64_t micro_step_ = 0;
    Ps host_ = 0;
    Ps compute_ = 0;
    Ps communicator_ = 0;
    Ps gather_streams_ = 0;
    Ps copied_out_ = 0;
};

TEST_CASE("a sharded step is the one that FSDP2's rules give, to the picosecond, on 1,000 models",
          "[sharding]") {
    std::mt19937 random(22);
    for (int round = 0; round < 1000; ++round) {
        const StepInput input = testing::random_blocks(random);
        const ShardingRequest request = testing::random_sharding(random);
        INFO("round " << round);
        const ShardPlan plan = make_shard_plan(input.workload, request, input.group.ranks);
        const ShardedProgram built = build_sharded_program({input, request}, plan);
        REQUIRE(settled_times(built.program, {}).step().count() ==
                Recurrence(input, request).step());
    }
}

}  // namespace
}  // namespace bucketwise
