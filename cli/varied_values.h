// `--vary /json/pointer=VALUES`: the values a key of the scenario takes in a sweep.
#pragma once

#include <string>

#include "sim/predict/what_if.h"

namespace bucketwise {

// VALUES is a list, `a,b,c`, of numbers, true, false, and what is none of these, strings (in double
// quotes where they would be read as something else or hold a comma); or a range of numbers,
// `LOW..HIGH:xFACTOR`, `LOW..HIGH:+STEP` or `HIGH..LOW:-STEP`. A range holds every value from the
// first on that does not lie beyond the second; each is computed by its place in decimal, so that
// 0..1:+0.1 has 0.3 in it, and whole numbers stay whole. Throws InputError.
VariedKey parse_varied_key(const std::string& text);

}  // namespace bucketwise
