// Numbers, sentences and tables as people read them. Predictions and measurements have three
// digits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

// "0.0123", "1.23", "12.3", "123", "1234": never fewer than the digits before the point.
std::string three_digits(double value);

// "12.3 ms".
std::string ms_text(Duration time);

// 0 where there is no whole.
double share_of(Duration part, Duration whole);

// A share in percent: "0.4 %", "3.2 %", "15 %"; "less than 0.1 %" in place of "0.0 %".
// Precondition: not negative.
std::string percent_text(double share);

// "3.1 to 4.9 %", "12 to 15 %"; one number where both read alike. Ends may be negative: "-1.0 to
// 2.3 %".
std::string percent_range_text(double low, double high);

// By how much less time a step takes: "12 % less time", "12 to 30 % less time"; near a simple part
// "half the time", "a third of the time", "a quarter of the time". Precondition: from 0 to 1.
std::string less_time_text(double low, double high);

// "12 % faster"; from 30 % on "half the time", "35 to 41 % less time", because half the time is
// twice as fast.
std::string faster_text(double low, double high);

// "12 % faster than the default", "half the time of the default", "35 to 41 % less time than the
// default".
std::string faster_than_text(double low, double high, const std::string& other);

// "1 round", "2 rounds".
std::string counted(long long count, const std::string& noun);

// Breaks at spaces into lines of at most so many characters.
std::string wrapped(const std::string& text, std::size_t columns = 100);

// "40 seconds", "3 minutes", "2 hours", rounded up.
std::string waiting_text(double seconds);

struct TextColumn {
    std::string heading;
    std::size_t width = 0;  // at least; a column is as wide as its widest cell
    bool left = false;      // aligned to the left, else to the right
};

// A line of headings and a line for each row, two spaces between columns. Each row has a cell for
// each column.
std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace bucketwise
