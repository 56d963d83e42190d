// Numbers and sentences as people read them: three digits are all that a prediction or a
// measurement has.
#pragma once

#include <cstddef>
#include <string>

namespace bucketwise {

// "0.0123", "1.23", "12.3", "123", "1234": never fewer than the digits before the point.
std::string three_digits(double value);

// A share as percent: "0.4 %", "3.2 %", "15 %"; "less than 0.1 %" where that would read as nothing.
// Precondition: not negative.
std::string percent_text(double share);

// "3.1 to 4.9 %", "12 to 15 %"; one number where both read alike. Ends may be negative: "-1.0 to
// 2.3 %".
std::string percent_range_text(double low, double high);

// "1 round", "2 rounds".
std::string counted(long long count, const std::string& noun);

// Broken into lines of at most so many characters, at spaces.
std::string wrapped(const std::string& text, std::size_t columns = 100);

// "40 seconds", "3 minutes", "2 hours", rounded up.
std::string waiting_text(double seconds);

}  // namespace bucketwise
