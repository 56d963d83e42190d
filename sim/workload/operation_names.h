// What the names of operations tell, as PyTorch calls them.
#pragma once

#include <string_view>

namespace bucketwise {

// "aten::addmm", "aten::conv2d", "ConvolutionBackward0", "sgemm": a matrix product, or attention.
bool names_matrix_product(std::string_view operation);

}  // namespace bucketwise
