// The processors of a rank's threads.
//
// A rank has three threads: one computes, one communicates, one is the transport's. Gloo's
// transport thread, when it takes the processor from the thread that is just sending, spins on the
// lock that the sender holds, and both stand still until the next timer tick: with fewer processors
// than threads, all-reduces of 0.2 ms then take 4 ms every so often. No link has that, and neither
// has a machine with a processor for each thread. So these two threads of a rank are kept apart;
// the one that computes runs wherever there is room.
#pragma once

#include <sched.h>

#include <string>

namespace bucketwise {

// Where the calling thread, and threads that it starts, may run while this lives. Within what was
// allowed before; does nothing where that is a single processor.
class ProcessorLimit {
  public:
    // The transport's threads of ranks with successive numbers take successive processors.
    static ProcessorLimit for_transport(int rank) { return ProcessorLimit(rank, true); }
    static ProcessorLimit away_from_transport(int rank) { return ProcessorLimit(rank, false); }

    ~ProcessorLimit();
    ProcessorLimit(const ProcessorLimit&) = delete;
    ProcessorLimit& operator=(const ProcessorLimit&) = delete;

  private:
    ProcessorLimit(int rank, bool on_it);

    cpu_set_t before_{};
    bool limits_ = false;
};

// How ranks' threads share the processors: "threads kept apart", or "default" where there is one.
std::string affinity_of_threads();

}  // namespace bucketwise
