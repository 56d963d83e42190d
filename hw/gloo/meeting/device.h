// The network address that a rank listens on.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>

namespace bucketwise {

// Listens on `address`, numeric, or, when it is empty, on the first address of `interface`. Throws
// InputError when neither names one address of this host: to listen on every network would let in
// anybody who can reach the host, and Gloo does not ask who connects.
std::shared_ptr<gloo::transport::Device> open_device(const std::string& address,
                                                     const std::string& interface);

}  // namespace bucketwise
