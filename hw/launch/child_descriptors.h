// Work in a child process that leaves descriptors.
//
// For what a process can only do to itself as a whole, such as entering a user namespace: the child
// does it and ends, and what it opened is the caller's.
#pragma once

#include <functional>
#include <vector>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

// What `work` returns in a child of one thread, whose standard streams are open. Throws
// std::runtime_error with what `work` threw, or if there can be no such child. When this returns or
// throws the child has ended; it does not outlive this process either, however that ends.
std::vector<Descriptor> descriptors_from_child(
    const std::function<std::vector<Descriptor>()>& work);

}  // namespace bucketwise
