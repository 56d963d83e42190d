// How the kernel schedules this process.
#pragma once

#include <string>

namespace bucketwise {

// Asks Linux to treat all threads that this process starts from now on as batch work: a thread
// that wakes up then does not take the processor from one that runs. Needs no privilege; does
// nothing where it is refused.
//
// A rank has three threads: one computes, one communicates, one is the transport's. With fewer
// processors than threads, the transport's thread otherwise preempts the one that holds the lock it
// is about to spin on, and both stand still until the next timer tick: all-reduces of 0.1 ms then
// take 4 ms every so often. A machine with a processor for each thread never sees that, and no
// link has it.
void prefer_batch_scheduling();

// "SCHED_BATCH", "SCHED_OTHER" or a number, of the calling thread.
std::string scheduling_policy();

}  // namespace bucketwise
