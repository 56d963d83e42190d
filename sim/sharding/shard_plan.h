// The groups of a sharded step: which parameters are gathered and reduced together, how many bytes
// that is, and where in forward and backward computing enters and leaves each.
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

// What one fully_shard call manages.
struct ShardGroup {
    std::vector<std::string> modules;      // empty: the root
    std::vector<std::int32_t> parameters;  // indices into Workload::gradients, rising
    DType dtype = DType::float32;          // of the shard, which the optimizer updates
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
    DType gradient_dtype = DType::float32;  // in which autograd leaves them
    std::int64_t numel = 0;                 // of its parameters
    std::int64_t padded_numel = 0;          // the same with what is padded; a multiple of the ranks
    bool operator==(const ShardGroup&) const = default;

    [[nodiscard]] bool is_root() const { return modules.empty(); }
    [[nodiscard]] Bytes gathered() const { return padded_numel * element_size(gathered_dtype); }
    [[nodiscard]] Bytes reduced() const { return padded_numel * element_size(reduced_dtype); }
    [[nodiscard]] Bytes gradients() const { return numel * element_size(gradient_dtype); }
};

// One time that computing goes through a group's modules: operations [first, end) of a pass, of
// which some may be those of groups within.
struct GroupCall {
    std::size_t group = 0;
    std::size_t first = 0;
    std::size_t end = 0;
    bool operator==(const GroupCall&) const = default;
};

struct ShardPlan {
    std::int64_t ranks = 1;          // among which parameters are cut
    std::vector<ShardGroup> groups;  // the root, if it has parameters, then as modules are listed
    std::vector<std::size_t> group_of;  // by parameter
    // By where they begin, outer ones first.
    std::vector<GroupCall> forward;
    std::vector<GroupCall> backward;
    // By group: none of its inputs has a gradient, so that nothing tells that its backward is over
    // but the end of all of it.
    std::vector<bool> ends_with_backward;
    bool operator==(const ShardPlan&) const = default;

    [[nodiscard]] Bytes shard_bytes() const;  // of one rank, as the optimizer has them
};

// Elements of a parameter cut among so many ranks: each has as many, the last of them padded. Along
// the first dimension or, where that is not known, anywhere.
std::int64_t padded_numel(const Gradient& parameter, std::int64_t ranks);

// The modules of the calls that the request makes, of parameters with these names.
std::vector<std::vector<std::string>> modules_of_groups(const ShardingRequest& request,
                                                        const std::vector<std::string>& parameters);

// The same workload where forward, if it is one operation that nobody has taken apart, is one for
// each gradient, as long as what backward takes for it is in proportion; backward, too, is one for
// each. To the picosecond both are as long.
Workload with_passes_by_gradient(Workload workload);

// An operation belongs to the group with the longest module name that it belongs to; else to that
// of the gradients that it makes ready, if that is one; else to the root. Throws InputError, which
// names
// `/sync/sharding`, for a module without parameters, for groups that share one, and for groups
// whose parameters have several dtypes.
ShardPlan make_shard_plan(const Workload& workload, const ShardingRequest& request,
                          std::int64_t ranks);

}  // namespace bucketwise
