#include "sim/workload/operation_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace bucketwise {
namespace {

// In lower case: "aten", "conv", "d" and "backward" of "aten::conv2d_Backward0".
std::vector<std::string> words_of(std::string_view name) {
    std::vector<std::string> words;
    char last = ' ';
    for (const char c : name) {
        const bool is_upper = 'A' <= c && c <= 'Z';
        const bool is_lower = 'a' <= c && c <= 'z';
        const bool goes_on =
            ('A' <= last && last <= 'Z') || ('a' <= last && last <= 'z' && !is_upper);
        if ((is_upper || is_lower) && !goes_on) {
            words.emplace_back();
        }
        if (is_upper || is_lower) {
            words.back() += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
        }
        last = c;
    }
    return words;
}

}  // namespace

bool names_matrix_product(std::string_view operation) {
    constexpr std::array<std::string_view, 4> products{"linear", "conv", "convolution", "matmul"};
    const std::vector<std::string> words = words_of(operation);
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
        // mm, addmm, bmm, sgemm
        return (word.ends_with("mm") && word != "comm") || word.ends_with("attention") ||
               std::find(products.begin(), products.end(), word) != products.end();
    });
}

}  // namespace bucketwise
