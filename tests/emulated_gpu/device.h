// The device of each thread.
#pragma once

namespace bucketwise::emulated {

// As set by cudaSetDevice, 0 at first.
int current_device();

}  // namespace bucketwise::emulated
