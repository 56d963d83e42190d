// Matrices over (max, +): what a piece of a step does to the moments at which its streams are done.
//
// Without interference every moment of a step is the latest of earlier ones plus times that do not
// depend on them, so any piece of it is such a matrix, and pieces one after another are their
// product (Baccelli, Cohen, Olsder, Quadrat 1992, "Synchronization and Linearity"). Times are in
// picoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace bucketwise::max_plus {

// Before everything: the zero of (max, +). Two of them still add, and a sum of times that are
// shorter than longest_duration never lifts it near any moment of a step.
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min() / 4;

constexpr std::size_t size = 3;

using Vector = std::array<std::int64_t, size>;
using Matrix = std::array<Vector, size>;  // by row: what it gives, by column: what it is of

constexpr Matrix identity{{{0, never, never}, {never, 0, never}, {never, never, 0}}};

// Moments and times are never negative, so a negative sum is one of never.
constexpr std::int64_t sum(std::int64_t a, std::int64_t b) {
    return a + b < 0 ? never : a + b;
}

inline Vector applied(const Matrix& matrix, const Vector& to) {
    Vector result{};
    for (std::size_t row = 0; row < size; ++row) {
        result[row] = std::max(
            {sum(matrix[row][0], to[0]), sum(matrix[row][1], to[1]), sum(matrix[row][2], to[2])});
    }
    return result;
}

// First `first`, then `then`.
inline Matrix composed(const Matrix& then, const Matrix& first) {
    Matrix result{};
    for (std::size_t row = 0; row < size; ++row) {
        for (std::size_t column = 0; column < size; ++column) {
            result[row][column] =
                std::max({sum(then[row][0], first[0][column]), sum(then[row][1], first[1][column]),
                          sum(then[row][2], first[2][column])});
        }
    }
    return result;
}

// Whether no entry of `a` is later than that of `b` by more than `but_for`.
inline bool none_later(const Vector& a, const Vector& b, std::int64_t but_for) {
    return a[0] <= b[0] + but_for && a[1] <= b[1] + but_for && a[2] <= b[2] + but_for;
}

}  // namespace bucketwise::max_plus
