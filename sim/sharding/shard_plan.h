// The groups of a sharded step: parameters that are gathered and reduced together, their bytes, and
// where forward and backward enter and leave each group.
//
// Sizes follow FSDPParam (torch/distributed/fsdp/_fully_shard/_fsdp_param.py): each parameter is
// cut along its first dimension, which is padded to a multiple of the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The parameters of one fully_shard call.
struct ShardGroup {
    std::vector<std::string> modules;      // empty: the root
    std::vector<std::int32_t> parameters;  // indices into Workload::gradients, rising
    DType dtype = DType::float32;          // of the shard, which the optimizer updates
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
    DType gradient_dtype = DType::float32;  // as autograd leaves them
    std::int64_t numel = 0;                 // of its parameters
    std::int64_t padded_numel = 0;          // with padding; a multiple of the ranks
    std::int64_t float8_numel = 0;          // of these, gathered in one byte each
    std::int64_t float8_weights = 0;        // tensors that hold them
    bool operator==(const ShardGroup&) const = default;

    [[nodiscard]] bool is_root() const { return modules.empty(); }
    [[nodiscard]] Bytes gathered() const {
        return (padded_numel - float8_numel) * element_size(gathered_dtype) + Bytes{float8_numel};
    }
    [[nodiscard]] bool casts_before_gathering() const {
        return dtype != gathered_dtype || float8_numel > 0;
    }
    [[nodiscard]] Bytes reduced() const { return padded_numel * element_size(reduced_dtype); }
    [[nodiscard]] Bytes gradients() const { return numel * element_size(gradient_dtype); }
};

// One pass of computing through a group's modules: operations [first, end), including those of
// groups within.
struct GroupCall {
    std::size_t group = 0;
    std::size_t first = 0;
    std::size_t end = 0;
    bool operator==(const GroupCall&) const = default;
};

struct ShardPlan {
    std::int64_t ranks = 1;          // that share the parameters
    std::vector<ShardGroup> groups;  // the root, if it has parameters, then as modules are listed
    std::vector<std::size_t> group_of;  // by parameter
    // By their begin, outer calls first.
    std::vector<GroupCall> forward;
    std::vector<GroupCall> backward;
    // By group: no input has a gradient, so its backward is over only at the end of backward.
    std::vector<bool> ends_with_backward;
    bool operator==(const ShardPlan&) const = default;
};

// Elements of a parameter shared equally by so many ranks, with padding at the end: along the first
// dimension or, if that is unknown, anywhere.
std::int64_t padded_numel(const Gradient& parameter, std::int64_t ranks);

// The modules of each call of the request, for parameters with these names.
std::vector<std::vector<std::string>> modules_of_groups(const ShardingRequest& request,
                                                        const std::vector<std::string>& parameters);

// Splits a forward of a single operation without a source into one operation for each gradient, in
// proportion to its backward, and backward into one for each gradient, too. Both keep their length
// to the picosecond.
Workload with_passes_by_gradient(Workload workload);

// An operation belongs to the group with the longest module name that matches; otherwise to the
// group of a gradient that it makes ready; otherwise to the root. Throws InputError for
// `/sync/sharding`: a module without parameters, groups that share one, and groups with parameters
// of several dtypes.
ShardPlan make_shard_plan(const Workload& workload, const ShardingRequest& request,
                          std::int64_t ranks);

}  // namespace bucketwise
