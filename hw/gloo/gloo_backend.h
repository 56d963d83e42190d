// The backend for any CPU: Gloo over TCP.
#pragma once

#include "hw/backend/backend.h"

namespace bucketwise {

const Backend& gloo_backend();

}  // namespace bucketwise
