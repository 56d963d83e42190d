#include "sim/workload/model.h"

#include <algorithm>
#include <array>

namespace bucketwise {
namespace {

// Words in lower case: "aten", "conv", "d" and "backward" for "aten::conv2d_Backward0".
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
    return std::ranges::any_of(words, [&](const std::string& word) {
        // mm, addmm, bmm, sgemm
        return (word.ends_with("mm") && word != "comm") || word.ends_with("attention") ||
               std::ranges::find(products, word) != products.end();
    });
}

Work work_of(const Operation& operation, Pass pass) {
    constexpr std::int64_t batch_norm_times = 3;  // forward moves its elements: read, read, write
    const Work& forward = operation.forward;
    const std::int64_t statistics = forward.elements / batch_norm_times;
    switch (pass) {
        case Pass::forward:
            return forward;
        case Pass::statistics:
            return {0, statistics};
        case Pass::normalise:
            return {forward.flops, forward.elements - statistics};
        case Pass::input_gradient:
            return operation.input_gradient;
        case Pass::weight_gradient:
            break;
    }
    return operation.weight_gradient;
}

std::int64_t forked_elements(const Operation& product) {
    return std::max<std::int64_t>(product.input_gradient.elements - product.operand_elements, 0);
}

void fuse_norms(Model& model) {
    for (Operation& operation : model.operations) {
        if (is_written_norm(operation)) {
            operation.eager = {};
            operation.upcasts = false;
            operation.kept_elements /= 2;
        }
    }
}

bool has_batch_norm(const Model& model) {
    return std::ranges::any_of(model.operations, [](const Operation& operation) {
        return operation.batch_norm_channels > 0;
    });
}

}  // namespace bucketwise
