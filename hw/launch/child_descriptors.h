// Work in a child process that leaves descriptors.
//
// For changes that a process can only make to itself as a whole, such as entering a user namespace:
// the child makes them and ends, and its descriptors become the caller's.
#pragma once

#include <functional>
#include <vector>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

// Runs `work` in a child of one thread, whose standard streams are open, and returns its
// descriptors. Throws std::runtime_error with the message of an exception in `work`, or if there
// can be no such child. When this returns or throws the child has ended; it does not outlive this
// process either, however that ends.
std::vector<Descriptor> descriptors_from_child(
    const std::function<std::vector<Descriptor>()>& work);

}  // namespace bucketwise
