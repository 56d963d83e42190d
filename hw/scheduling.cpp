#include "hw/scheduling.h"

#include <sched.h>

namespace bucketwise {

void prefer_batch_scheduling() {
    const struct sched_param none {};
    static_cast<void>(::sched_setscheduler(0, SCHED_BATCH, &none));
}

std::string scheduling_policy() {
    const int policy = ::sched_getscheduler(0);
    return policy == SCHED_BATCH   ? "SCHED_BATCH"
           : policy == SCHED_OTHER ? "SCHED_OTHER"
                                   : std::to_string(policy);
}

}  // namespace bucketwise
