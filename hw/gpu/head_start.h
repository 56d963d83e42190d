// Lets the host launch many things before the GPU begins with the first, so that none waits for its
// launch.
//
// A few hundred launches at a time: the GPU's queue holds about a thousand, and a host that waits
// for room in it could not let the GPU begin. For the same reason everything must have been
// launched once before: the driver loads kernels when they are first launched, and may wait for an
// idle GPU to do so.
#pragma once

#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {

class HeadStart {
  public:
    HeadStart() = default;
    ~HeadStart() { release(); }  // a stream that is held could not be destroyed
    HeadStart(const HeadStart&) = delete;
    HeadStart& operator=(const HeadStart&) = delete;

    static constexpr int most_launches = 256;

    // Lets the GPU begin at its end, however that comes about: held work could not be aborted.
    class Hold {
      public:
        // Nothing that is put on the stream from now on begins before the release.
        Hold(HeadStart& head_start, const GpuStream& stream) : head_start_(head_start) {
            head_start_.hold(stream);
        }
        ~Hold() { release(); }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;
        void release() { head_start_.release(); }

      private:
        HeadStart& head_start_;
    };

    void release();
    // Once what was held has ended. Throws GpuError if the GPU had not waited.
    void check() const;

  private:
    void hold(const GpuStream& stream);

    HostFlag flag_;
    HostFlag gave_up_;
    int held_ = 0;
};

// The time that a timing event on the stream adds to an interval: tiny copies launched ahead, with
// and without an event after each. `memory` is of the device, two words of 16 bytes.
Duration time_of_a_stamp(const GpuStream& stream, HeadStart& head_start,
                         const DeviceMemory& memory);

}  // namespace bucketwise
