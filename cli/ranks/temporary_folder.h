// A folder that lives as long as its owner, however that ends.
#pragma once

#include <string>

#include <sys/types.h>

#include "hw/launch/launcher_descriptor.h"

namespace bucketwise {

// A folder that only this user sees, removed at the end. Where this process and its ranks are
// killed, a waiting shell removes it.
class TemporaryFolder {
  public:
    // Throws InputError where TMPDIR names none, and std::runtime_error.
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] std::string path() const { return path_; }

  private:
    void start_guard();

    std::string path_;
    Descriptor alive_;    // the guard's pipe, which ends with this process
    ::pid_t guard_ = -1;  // -1: not started; the folder stays if this process is killed
};

}  // namespace bucketwise
