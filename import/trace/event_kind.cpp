#include "import/trace/event_kind.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "import/source/plain_text.h"

namespace bucketwise {
namespace {

enum class Match : std::uint8_t { begins, contains, is };

struct NameRule {
    Match match;
    std::string_view text;
    TraceEventKind kind;
};

// The first that fits counts.
constexpr std::array<NameRule, 22> on_host{
    {{Match::begins, "ProfilerStep", TraceEventKind::step},
     {Match::begins, "autograd::engine::evaluate_function", TraceEventKind::backward_node},
     {Match::begins, "torch::autograd::AccumulateGrad", TraceEventKind::accumulate_grad},
     {Match::contains, "reducer::copy_bucket_to_grad", TraceEventKind::bucket_to_grad},
     {Match::begins, "torch::distributed::reducer::", TraceEventKind::reducer_copy},
     {Match::is, "record_param_comms", TraceEventKind::collective_call},
     {Match::begins, "c10d::", TraceEventKind::collective_op},
     {Match::begins, "nccl:", TraceEventKind::annotation},
     {Match::begins, "gloo:", TraceEventKind::annotation},
     {Match::begins, "mpi:", TraceEventKind::annotation},
     {Match::begins, "ucc:", TraceEventKind::annotation},
     {Match::is, "aten::div_", TraceEventKind::division},
     {Match::is, "aten::mul", TraceEventKind::division},
     {Match::is, "aten::_foreach_copy_", TraceEventKind::batched_copy},
     {Match::begins, "FSDP::", TraceEventKind::sharding},
     {Match::begins, "FullyShardedDataParallel.", TraceEventKind::sharding},
     {Match::begins, "enumerate(DataLoader)", TraceEventKind::loading},
     {Match::begins, "CompiledFunction", TraceEventKind::compiled},
     {Match::begins, "Torch-Compiled Region", TraceEventKind::compiled},
     {Match::begins, "## Call CompiledFxGraph", TraceEventKind::compiled},
     {Match::begins, "Optimizer.step", TraceEventKind::optimizer},
     {Match::begins, "DistributedDataParallel.forward", TraceEventKind::ddp_forward}}};
constexpr std::array<NameRule, 6> runtime_calls{
    {{Match::contains, "Synchronize", TraceEventKind::synchronise},
     {Match::contains, "Launch", TraceEventKind::launch},
     {Match::contains, "Memcpy", TraceEventKind::launch},
     {Match::contains, "Memset", TraceEventKind::launch},
     {Match::contains, "memcpy", TraceEventKind::launch},
     {Match::contains, "memset", TraceEventKind::launch}}};
constexpr std::array<NameRule, 3> collective_kernels{
    {{Match::begins, "nccl", TraceEventKind::collective_kernel},
     {Match::contains, "ncclKernel", TraceEventKind::collective_kernel},
     {Match::contains, "ncclDevKernel", TraceEventKind::collective_kernel}}};

bool fits(const NameRule& rule, std::string_view name) {
    return rule.match == Match::begins     ? name.starts_with(rule.text)
           : rule.match == Match::contains ? name.find(rule.text) != std::string_view::npos
                                           : name == rule.text;
}

std::optional<TraceEventKind> first_fit(std::span<const NameRule> rules, std::string_view name,
                                        std::optional<TraceEventKind> otherwise = {}) {
    const auto found =
        std::ranges::find_if(rules, [&](const NameRule& rule) { return fits(rule, name); });
    return found == rules.end() ? otherwise : std::optional(found->kind);
}

}  // namespace

Category category_of(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, Category>, 12> categories{
        {{"cpu_op", Category::operation},
         {"operator", Category::operation},
         {"user_annotation", Category::annotation},
         {"cuda_runtime", Category::runtime},
         {"cuda_driver", Category::runtime},
         {"hip_runtime", Category::runtime},
         {"runtime", Category::runtime},
         {"kernel", Category::kernel},
         {"gpu_memcpy", Category::copy},
         {"memcpy", Category::copy},
         {"gpu_memset", Category::fill},
         {"memset", Category::fill}}};
    const auto* const found = std::ranges::find_if(categories, [&](const auto& category) {
        return std::ranges::equal(category.first, text, {}, {}, lower_letter);
    });
    return found == categories.end() ? Category::other : found->second;
}

std::string_view unread_device(std::string_view category) {
    for (const std::string_view device : {"mtia", "xpu", "hpu", "npu", "privateuse1"}) {
        if (category.starts_with(device) && category.substr(device.size()).starts_with('_')) {
            return device;
        }
    }
    return {};
}

bool is_library_call(std::string_view name) {
    return name.find("::") != std::string_view::npos;
}

std::optional<TraceEventKind> kind_of(Category category, std::string_view name) {
    switch (category) {
        case Category::operation:
            return first_fit(on_host, name, TraceEventKind::operation);
        case Category::annotation:
            return first_fit(on_host, name);
        case Category::runtime:
            return first_fit(runtime_calls, name);
        case Category::kernel:
            return first_fit(collective_kernels, name, TraceEventKind::kernel);
        case Category::copy:
            return TraceEventKind::copy;
        case Category::fill:
            return TraceEventKind::fill;
        case Category::other:
            break;
    }
    return std::nullopt;
}

}  // namespace bucketwise
