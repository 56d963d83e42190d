#include "import/nccl_tests/nccl_tests_row.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

namespace bucketwise {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::array<std::string_view, 7> reductions{"sum", "prod", "max",   "min",
                                                     "avg", "none", "mulsum"};
// The largest message that fits a measurement.
constexpr std::int64_t most_bytes = std::int64_t{1} << 50;

bool is_among(std::span<const std::string_view> texts, std::string_view word) {
    return std::ranges::find(texts, word) != texts.end();
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// The number at the end of a word that a launcher's prefix runs into, as in "<stdout>:1024".
std::string_view trailing_digits(std::string_view word) {
    constexpr std::string_view before = ">:])#";
    std::size_t begin = word.size();
    while (begin > 0 && is_digit(word[begin - 1])) {
        --begin;
    }
    const bool stands_alone = begin == 0 || before.find(word[begin - 1]) != std::string_view::npos;
    return stands_alone ? word.substr(begin) : std::string_view{};
}

std::optional<Printed> printed_number(std::string_view word) {
    double value = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc{} || rest != end || !std::isfinite(value)) {
        return std::nullopt;
    }
    const std::size_t exponent_at = std::min(word.find_first_of("eE"), word.size());
    const std::size_t dot = word.substr(0, exponent_at).find('.');
    double decimals =
        dot == std::string_view::npos ? 0 : static_cast<double>(exponent_at - dot - 1);
    if (exponent_at < word.size()) {
        int exponent = 0;
        const std::size_t sign = word[exponent_at + 1] == '+' ? 1 : 0;
        std::from_chars(word.data() + exponent_at + 1 + sign, end, exponent);
        decimals -= exponent;
    }
    return Printed{value, 0.5 * std::pow(10.0, -decimals)};
}

// The content of a column of numbers.
struct Cell {
    std::optional<Printed> number;  // none: N/A, nan, inf
    bool whole = false;             // without point or exponent
    bool starred = false;           // the mark of a wrong result in old versions
};

std::optional<Cell> read_cell(std::string_view word) {
    Cell cell;
    if (word.size() > 1 && word.back() == '*') {
        cell.starred = true;
        word.remove_suffix(1);
    }
    constexpr std::array<std::string_view, 6> nothing{"N/A", "nan", "-nan", "inf", "-inf", "n/a"};
    if (is_among(nothing, word)) {
        return cell;
    }
    cell.number = printed_number(word);
    cell.whole = whole_number_in(word).has_value();
    return cell.number ? std::optional(cell) : std::nullopt;
}

// --- halves ---

// Whether algbw is bytes over time, within the printed digits. With -C, whether launching took no
// longer than the whole.
bool agrees(const NcclTestsHalf& half, std::int64_t bytes, bool cpu_time) {
    const Printed& time = half.time_us;
    if (!can_be_measured(time.value) || half.algbw.value < 0 || half.busbw.value < 0) {
        return false;
    }
    constexpr double slack = 2e-3;  // some versions compute in single precision
    const double bus_over_alg = 2;  // the most of any collective
    if (half.busbw.lowest() > bus_over_alg * (1 + slack) * half.algbw.highest()) {
        return false;
    }
    // 1 GB/s is 1000 bytes per us.
    const double gigabytes = static_cast<double>(bytes) / 1e3;
    const double shortest = std::max(time.lowest(), 1e-9);
    const double highest = gigabytes / shortest * (1 + slack) + half.algbw.half_unit;
    const double lowest = gigabytes / time.highest() * (1 - slack) - half.algbw.half_unit;
    return half.algbw.value <= highest && (cpu_time || half.algbw.value >= lowest);
}

// nccl-tests before 2.10 (src/all_gather.cu and src/reduce_scatter.cu, GetBw): algbw, too, counts
// only what a rank receives from others, (n - 1) / n of the bytes on n ranks. Gives the half the
// algbw of later versions.
void count_all_bytes(NcclTestsHalf& half, std::int64_t bytes) {
    if (half.algbw.value != half.busbw.value || !can_be_measured(half.time_us.value)) {
        return;
    }
    const double all = static_cast<double>(bytes) / 1e3 / half.time_us.value;
    const double missing = 1 - half.algbw.value / all;  // 1 / n
    constexpr double most = 0.51;                       // of two ranks, as printed
    constexpr double least = 0.002;                     // else all bytes are counted
    if (missing > least && missing < most) {
        half.algbw = {.value = all, .half_unit = half.algbw.half_unit};
    }
}

struct Layout {
    bool root = false;
    std::size_t stride = 4;  // columns of a half

    [[nodiscard]] std::size_t begin(std::size_t half) const {
        return (root ? 1 : 0) + half * stride;
    }
    [[nodiscard]] std::size_t end() const { return begin(2); }
};

std::optional<NcclTestsHalf> half_at(const std::vector<Cell>& cells, const Layout& layout,
                                     std::size_t index) {
    const std::size_t begin = layout.begin(index);
    const std::size_t numbers = 3;
    // A half whose last column is missing was cut off, maybe within a number.
    if (cells.size() < begin + std::min(layout.stride, numbers + 1)) {
        return std::nullopt;
    }
    for (std::size_t i = begin; i < begin + numbers; ++i) {
        if (!cells[i].number) {
            return std::nullopt;
        }
    }
    NcclTestsHalf half{.time_us = *cells[begin].number,
                       .algbw = *cells[begin + 1].number,
                       .busbw = *cells[begin + 2].number};
    if (layout.stride > numbers) {
        // New versions print the number of wrong elements (nan or N/A: not counted), old ones the
        // largest error, with a star where it is too large.
        const Cell& wrong = cells[begin + numbers];
        half.wrong = wrong.starred || (wrong.number && wrong.number->value >= 1);
    }
    return half;
}

struct Reading {
    Layout layout = {};
    std::vector<NcclTestsHalf> halves = {};
    bool incomplete = false;
    int score = -1;
};

Reading read_halves(const std::vector<Cell>& cells, const Layout& layout, std::int64_t bytes,
                    const NcclTestsColumns& columns) {
    Reading reading{.layout = layout};
    if (layout.root && (cells.empty() || !cells.front().whole)) {
        return reading;
    }
    for (const std::size_t index : {0U, 1U}) {
        auto half = half_at(cells, layout, index);
        if (half && columns.is_gather) {
            count_all_bytes(*half, bytes);
        }
        if (half && agrees(*half, bytes, columns.cpu_time)) {
            reading.halves.push_back(*half);
        } else {
            // A run that measures in place only prints one half.
            reading.incomplete =
                reading.incomplete || index == 0 || cells.size() != layout.begin(1);
        }
    }
    const bool fits = cells.size() == layout.end() || cells.size() == layout.begin(1);
    reading.score = 4 * static_cast<int>(reading.halves.size()) + (fits ? 2 : 0) +
                    (columns.root == layout.root ? 1 : 0);
    return reading;
}

Reading best_reading(const std::vector<Cell>& cells, std::int64_t bytes,
                     const NcclTestsColumns& columns) {
    Reading best;
    for (const bool root : {true, false}) {
        for (const std::size_t stride : {4U, 8U, 3U}) {
            Reading reading = read_halves(cells, {root, stride}, bytes, columns);
            if (reading.score > best.score) {
                best = std::move(reading);
            }
        }
    }
    return best;
}

// --- columns that ran into each other ---

// All ways to split a word with several points into as many numbers of up to three decimals.
void split_numbers(std::string_view word, Words& taken, std::vector<Words>& ways) {
    constexpr std::size_t most_ways = 64;
    const std::size_t dot = word.find('.');
    const std::size_t next = dot == std::string_view::npos ? dot : word.find('.', dot + 1);
    if (ways.size() >= most_ways) {
        return;
    }
    if (next == std::string_view::npos) {
        taken.push_back(word);
        ways.push_back(taken);
        taken.pop_back();
        return;
    }
    constexpr std::size_t most_decimals = 3;
    for (std::size_t decimals = 1; decimals <= most_decimals && dot + decimals + 1 < next;
         ++decimals) {
        const std::size_t end = dot + 1 + decimals;
        if (word[end] == '0' && end + 1 != next) {
            continue;  // no number begins with 0 and a digit
        }
        taken.push_back(word.substr(0, end));
        split_numbers(word.substr(end), taken, ways);
        taken.pop_back();
    }
}

// The words with the first run-together word taken apart, in every way; nothing without such a
// word.
std::vector<Words> taken_apart(const Words& words) {
    const auto ran_together = std::ranges::find_if(words, [](std::string_view word) {
        return std::ranges::count(word, '.') > 1 &&
               word.find_first_not_of("0123456789.") == std::string_view::npos;
    });
    std::vector<Words> all;
    if (ran_together == words.end()) {
        return all;
    }
    std::vector<Words> ways;
    Words taken;
    split_numbers(*ran_together, taken, ways);
    for (const Words& way : ways) {
        Words apart(words.begin(), ran_together);
        apart.insert(apart.end(), way.begin(), way.end());
        apart.insert(apart.end(), ran_together + 1, words.end());
        all.push_back(std::move(apart));
    }
    return all;
}

// --- the row ---

// The cells of all words up to the first that is none.
std::vector<Cell> cells_of(const Words& words) {
    std::vector<Cell> cells;
    for (const std::string_view word : words) {
        const auto cell = read_cell(word);
        if (!cell) {
            break;
        }
        cells.push_back(*cell);
    }
    return cells;
}

bool looks_like_date(std::string_view word) {
    constexpr std::size_t length = 10;  // 2025-11-21
    return word.size() == length && word[4] == '-' && word[7] == '-' && is_digit(word[0]);
}

// A row with its size and count: the two words before the type, or one word that an all-reduce's
// rule takes apart: the size is the count times an element's.
std::optional<NcclTestsRow> row_of_size(const Words& words, std::size_t type,
                                        std::int64_t element) {
    const auto bounded = [](std::optional<std::int64_t> n) { return n && *n <= most_bytes; };
    const std::string_view last = trailing_digits(words[type - 1]);
    if (type >= 2) {
        const auto count = whole_number_in(words[type - 1]);
        const auto size = whole_number_in(trailing_digits(words[type - 2]));
        if (bounded(count) && bounded(size)) {
            return NcclTestsRow{.bytes = *size, .count = *count};
        }
    }
    for (std::size_t cut = 1; cut < last.size(); ++cut) {
        const auto size = whole_number_in(last.substr(0, cut));
        const auto count = whole_number_in(last.substr(cut));
        if (bounded(size) && bounded(count) && *count > 0 && last[cut] != '0' &&
            *size == *count * element) {
            return NcclTestsRow{.bytes = *size, .count = *count};
        }
    }
    return std::nullopt;
}

// The words as they are, or taken apart where more halves then agree with themselves.
Reading read_words(Words words, const NcclTestsColumns& columns, std::int64_t bytes) {
    Reading reading = best_reading(cells_of(words), bytes, columns);
    for (bool better = true; better && reading.halves.size() < 2;) {
        better = false;
        for (Words& apart : taken_apart(words)) {
            Reading other = best_reading(cells_of(apart), bytes, columns);
            if (other.halves.size() > reading.halves.size()) {
                reading = std::move(other);
                words = std::move(apart);
                better = true;
                break;
            }
        }
    }
    return reading;
}

void read_numbers(NcclTestsRow& row, const Words& words, NcclTestsColumns columns) {
    columns.is_gather = columns.is_gather || row.redop.empty();
    const std::vector<Cell> cells = cells_of(words);
    Reading reading = read_words(words, columns, row.bytes);
    if (reading.layout.root && !cells.empty()) {
        constexpr double most = 1e9;
        row.root = static_cast<std::int64_t>(std::clamp(cells.front().number->value, -1.0, most));
    }
    row.halves = std::move(reading.halves);
    row.incomplete = reading.incomplete;
    if (cells.size() < words.size() && looks_like_date(words[cells.size()])) {
        row.date = words[cells.size()];
    }
}

}  // namespace

// Not by find_first_of(), which calls a function for each character, and logs are long.
std::vector<std::string_view> words_of(std::string_view line) {
    const auto is_between = [](char c) {
        return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '|' || c == ',';
    };
    Words words;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= line.size(); ++i) {
        if (i == line.size() || is_between(line[i])) {
            if (begin < i) {
                words.push_back(line.substr(begin, i - begin));
            }
            begin = i + 1;
        }
    }
    return words;
}

std::optional<std::int64_t> whole_number_in(std::string_view text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    return !text.empty() && error == std::errc{} && rest == end ? std::optional(number)
                                                                : std::nullopt;
}

std::int64_t nccl_element_bytes(std::string_view dtype) {
    static const std::map<std::string_view, std::int64_t> sizes{
        {"int8", 1},     {"uint8", 1},    {"char", 1},    {"f8e4m3", 1},  {"f8e5m2", 1},
        {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"fp8e4m3", 1}, {"fp8e5m2", 1}, {"half", 2},
        {"bfloat16", 2}, {"int32", 4},    {"int", 4},     {"uint32", 4},  {"float", 4},
        {"int64", 8},    {"uint64", 8},   {"double", 8}};
    const auto found = sizes.find(dtype);
    return found == sizes.end() ? 0 : found->second;
}

bool can_be_measured(double us) {
    constexpr double longest_us = 8e11;
    constexpr double shortest_us = 1e-3;
    return us >= shortest_us && us <= longest_us;
}

std::optional<NcclTestsColumns> read_nccl_tests_heading(std::string_view line) {
    const Words words = words_of(line);
    const auto has = [&](std::string_view word) { return is_among(words, word); };
    if (!has("type") || !has("algbw") || !has("busbw") || !(has("time") || has("cputime"))) {
        return std::nullopt;
    }
    return NcclTestsColumns{.root = has("root"), .cpu_time = has("cputime")};
}

bool is_part_of_row(std::string_view line) {
    const Words words = words_of(line);
    return !words.empty() && std::ranges::all_of(words, [](std::string_view word) {
        return read_cell(word).has_value();
    });
}

std::optional<NcclTestsRow> read_nccl_tests_row(std::string_view line,
                                                const NcclTestsColumns& columns) {
    const Words words = words_of(line);
    const auto type = std::ranges::find_if(
        words, [](std::string_view word) { return nccl_element_bytes(word) > 0; });
    if (type == words.end() || type == words.begin()) {
        return std::nullopt;
    }
    auto row = row_of_size(words, static_cast<std::size_t>(type - words.begin()),
                           nccl_element_bytes(*type));
    if (row) {
        row->dtype = *type;
        auto next = type + 1;
        if (next != words.end() && is_among(reductions, *next)) {
            row->redop = *next++;
        }
        read_numbers(*row, {next, words.end()}, columns);
    }
    return row;
}

}  // namespace bucketwise
