// Caps: the size at which a bucket closes, how a cap is typed, and the walk over caps with
// different plans.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/units.h"

namespace bucketwise {

// PyTorch DDP's caps: 25 MiB, and 1 MiB for the first bucket (dist._DEFAULT_FIRST_BUCKET_BYTES).
constexpr Bytes default_bucket_cap{25 * bytes_per_mib};
constexpr Bytes default_first_bucket{1 * bytes_per_mib};

// The cap of a step's buckets: the framework's default, a named cap, or none where there is no cap
// to choose. PyTorch's default differs from naming its 25 MiB: it keeps a first bucket of 1 MiB.
class Cap {
  public:
    constexpr Cap() = default;  // the framework's default
    constexpr Cap(std::nullopt_t /*left_out*/) {}
    constexpr Cap(Bytes named) : kind_(Kind::named), size_(named) {}
    constexpr Cap(std::optional<Bytes> named) : Cap(named ? Cap(*named) : Cap()) {}
    static constexpr Cap none() {
        Cap cap;
        cap.kind_ = Kind::none;
        return cap;
    }

    [[nodiscard]] constexpr bool is_none() const { return kind_ == Kind::none; }
    [[nodiscard]] constexpr bool is_default() const { return kind_ == Kind::framework_default; }

    // Empty unless it is named.
    [[nodiscard]] constexpr std::optional<Bytes> named() const {
        return kind_ == Kind::named ? std::optional(size_) : std::nullopt;
    }
    // Named or default; empty where there is none.
    [[nodiscard]] constexpr std::optional<Bytes> size() const {
        return is_none() ? std::nullopt : std::optional(size_);
    }
    bool operator==(const Cap&) const = default;

  private:
    enum class Kind : std::uint8_t { framework_default, named, none };
    Kind kind_ = Kind::framework_default;
    Bytes size_ = default_bucket_cap;
};

// The caps with one plan, both ends included; no highest: every larger cap.
struct CapRange {
    Bytes lowest{1};
    std::optional<Bytes> highest;
    bool operator==(const CapRange&) const = default;
};

// The caps in both.
CapRange common(const CapRange& a, const CapRange& b);

// The first cap beyond the range, or the first that is `growth` times its lowest; empty if the
// range has every larger cap.
std::optional<Bytes> next_cap(const CapRange& range, double growth = 1.0);

// The least growth of caps from plan to plan for so many gradients; 1: the walk visits every plan.
double growth_of_caps(std::size_t gradients);

// The walk over distinct plans: `visit` is called with `first`, then with each next cap. It returns
// the caps with the same plan.
template <typename Visit>
void walk_plans(Bytes first, double growth, const Visit& visit) {
    for (std::optional<Bytes> cap = first; cap;) {
        cap = next_cap(visit(*cap), growth);
    }
}

// The shortest decimal number of MiB for exactly this cap. Typed caps are truncated to whole bytes.
double typed_mib(Bytes cap);

// The length of a cap typed in MiB: 0 for the default, 1 for a round number (1, 2, 4, 5 or 8 with
// any power of ten, or a power of two), else its digits, two or more.
int digits_to_type(Bytes cap);

// The roundest number of MiB in the range: the default cap if it lies within, else the number with
// the fewest digits.
Bytes roundest_cap(const CapRange& range);

}  // namespace bucketwise
