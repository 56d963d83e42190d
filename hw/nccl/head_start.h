// Lets the host launch many things before the GPU begins with the first, so that none waits for its
// launch.
//
// A few hundred launches at a time: the GPU's queue holds about a thousand, and a host that has to
// wait for room in it could not let the GPU begin. For the same reason everything must have been
// launched once before: the driver loads kernels when they are first launched, and may wait for an
// idle GPU to do so.
#pragma once

#include "hw/nccl/device_memory.h"
#include "hw/nccl/gpu_stream.h"

namespace bucketwise {

class HeadStart {
  public:
    HeadStart() = default;
    ~HeadStart() { release(); }  // a stream that is held could not be destroyed
    HeadStart(const HeadStart&) = delete;
    HeadStart& operator=(const HeadStart&) = delete;

    static constexpr int most_launches = 256;

    // Nothing that is put on the stream from now on begins before release().
    void hold(const GpuStream& stream);
    void release();
    // Once what was held has ended. Throws GpuError if the GPU had not waited.
    void check() const;

  private:
    HostFlag flag_;
    HostFlag gave_up_;
    int held_ = 0;
};

}  // namespace bucketwise
