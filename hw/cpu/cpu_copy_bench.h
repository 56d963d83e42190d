// Packing on a CPU: one thread, tensor by tensor.
#pragma once

#include "hw/compute/copy_bench.h"

namespace bucketwise {

class CpuCopyBench : public CopyBench {
  public:
    std::vector<CopyTimes> run(const CopyCase& copy_case, std::int64_t rounds) override;
};

}  // namespace bucketwise
