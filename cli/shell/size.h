// Sizes as users type them.
#pragma once

#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/strategy.h"

namespace bucketwise {

// "25MiB", "0.5 MiB", "64kB", "512B": a number above zero and B, kB, MB, GB (powers of 1000), KiB,
// MiB or GiB (powers of 1024). Fractions of a byte are dropped, as PyTorch drops them. Throws
// InputError, which names `option`.
Bytes parse_size(const std::string& text, const std::string& option);

// In the largest of B, KiB, MiB and GiB that leaves at least 1, with at most two decimals.
std::string text_of(Bytes size);

// A size as it was probably typed: "10MB" for 10,000,000 bytes, where text_of() gives 9.54MiB.
std::string message_text(Bytes size);

// Sizes separated by commas.
std::vector<Bytes> parse_sizes(const std::string& text, const std::string& option);

// The same; "auto": none.
std::vector<Bytes> sizes_or_auto(const std::string& text, const std::string& option);

// Throws InputError, which names --bucket-cap, for a cap that is too small for the strategy.
void check_caps(const std::vector<Bytes>& caps, const SyncRequest& sync);

// Throws InputError, which names `option`, unless the size is whole elements and at most 16 GiB.
void check_message(Bytes size, DType dtype, const std::string& option);

}  // namespace bucketwise
