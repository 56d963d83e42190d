// Tables of all-reduces that others published, as --published names them.
#pragma once

#include <string>
#include <vector>

#include "bench/all_reduce/rows.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// A CSV file of one of three forms, told by its columns:
//   comparison, world_size, tensor_elements, ring_max_s, other_max_s, ...: two algorithms in a row,
//     `ring_vs_butterfly` (our direct) or `ring_vs_library`
//   backend, data_size_mb, time_s, std_s: a library by size, on 2 ranks; MB is 2^20 bytes; rows of
//     another backend than `backend` are left out
//   world_size, bytes, algorithm, time_s, ...: as --format csv writes it
// Elements are of `dtype`. Throws InputError that names the line, and for a file without rows.
std::vector<PublishedAllReduce> read_published_all_reduces(const std::string& path, DType dtype,
                                                           const std::string& backend);

}  // namespace bucketwise
