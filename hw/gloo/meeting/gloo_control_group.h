// The control group over a Gloo context of its own.
#pragma once

#include "hw/gloo/meeting/group.h"
#include "hw/rank/control_group.h"

namespace bucketwise {

class GlooControlGroup final : public ControlGroup {
  public:
    // `group` outlives this and is used by nobody else.
    explicit GlooControlGroup(GlooGroup& group) : group_(group) {}

    [[nodiscard]] int rank() const override { return group_.rank(); }
    [[nodiscard]] int ranks() const override { return group_.ranks(); }
    void barrier() override;
    void broadcast_from_first(std::span<std::int64_t> values) override;
    std::vector<double> gather_to_first(std::span<const double> values) override;

  private:
    GlooGroup& group_;
};

}  // namespace bucketwise
