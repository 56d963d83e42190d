#include "hw/launch/processor_affinity.h"

namespace bucketwise {
namespace {

// The processor in `allowed` whose place among them, counted from 0, is `index` modulo their count.
int nth_processor(const cpu_set_t& allowed, int index) {
    int left = index % CPU_COUNT(&allowed);
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
        const bool is_allowed = CPU_ISSET(static_cast<unsigned>(processor), &allowed);
        if (is_allowed && left-- == 0) {
            return processor;
        }
    }
    return 0;
}

bool read_allowed(cpu_set_t& allowed) {
    return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1;
}

}  // namespace

ProcessorLimit::ProcessorLimit(int rank, bool on_it) {
    if (!read_allowed(before_)) {
        return;
    }
    const auto transport = static_cast<unsigned>(nth_processor(before_, rank));
    cpu_set_t limited = before_;
    if (on_it) {
        CPU_ZERO(&limited);
        CPU_SET(transport, &limited);
    } else {
        CPU_CLR(transport, &limited);
    }
    limits_ = ::sched_setaffinity(0, sizeof limited, &limited) == 0;
}

ProcessorLimit::~ProcessorLimit() {
    if (limits_) {
        static_cast<void>(::sched_setaffinity(0, sizeof before_, &before_));
    }
}

std::string affinity_of_threads() {
    cpu_set_t allowed;
    return read_allowed(allowed) ? "threads kept apart" : "default";
}

}  // namespace bucketwise
