// A rank's reports to its launcher.
#pragma once

#include <string>

namespace bucketwise {

// The rank's side. Does nothing when no launcher is listening.
//
// Each report is one line, "progress TEXT", "failure own TEXT" or "failure peer TEXT", in the pipe
// whose descriptor is in BUCKETWISE_REPORT_FD. Line breaks in TEXT become spaces, and text beyond
// an atomic write is cut off. Any thread may report.
class LauncherReport {
  public:
    LauncherReport();  // finds the launcher by the environment

    [[nodiscard]] bool has_launcher() const { return descriptor_ >= 0; }

    // Never waits: lost if the launcher does not keep up.
    void progress(const std::string& text) const;

    // Why this rank is about to end. `blames_peer`: the reason lies with another rank, so the
    // launcher looks for a better one first.
    void failure(const std::string& reason, bool blames_peer) const;

  private:
    int descriptor_ = -1;
};

}  // namespace bucketwise
