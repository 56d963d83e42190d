// Packing on a GPU, on the current device.
#pragma once

#include "hw/compute/copy_bench.h"
#include "hw/gpu/head_start.h"
#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {

class GpuCopyBench : public CopyBench {
  public:
    std::vector<CopyTimes> run(const CopyCase& copy_case, std::int64_t rounds) override;

  private:
    GpuStream stream_;
    HeadStart head_start_;
};

}  // namespace bucketwise
