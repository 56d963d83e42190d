// The arithmetic of an all-reduce on its elements.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace bucketwise::emulated {

// 0 for a type that the double does not know.
std::size_t size_of(ncclDataType_t type);

bool is_known(ncclRedOp_t operation);

// The elements of all contributions, by rank, combined in that order and rounded to the type after
// each step, into the first. As in NCCL, the mean of floats is the sum of the elements each
// multiplied by 1/ranks; that of integers divides at the end.
void reduce(std::vector<std::vector<std::byte>>& contributions, ncclDataType_t type,
            ncclRedOp_t operation);

}  // namespace bucketwise::emulated
