#include "sim/workload/float8.h"

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr CastCost both_passes{2 + 2 + 1, 2};  // of an element
constexpr CastCost one_pass{2 + 1, 1};

}  // namespace

CastCost float8_casts(const Operation& operation, Pass pass, const PassPlace& place,
                      Arithmetic arithmetic, bool weight_is_cast) {
    invariant(is_float8(arithmetic) && operation.product, "a product in float8");
    const bool by_rows = arithmetic == Arithmetic::float8_rowwise;
    const MatrixProduct& product = *operation.product;
    CastCost cost;
    const auto cast = [&](std::int64_t rows, std::int64_t columns, const CastCost& each) {
        cost.bytes += each.bytes * static_cast<double>(rows * columns * product.count);
        cost.kernels += each.kernels;
    };
    const CastCost& activation = place.compiled ? one_pass : both_passes;
    const CastCost& weight = place.compiled && by_rows ? one_pass : both_passes;
    const bool shares_input = place.compiled && forked_elements(operation) > 0;
    if (pass != Pass::input_gradient && !shares_input) {
        cast(product.m, product.k, activation);
    }
    if (pass == Pass::input_gradient || (pass == Pass::weight_gradient && by_rows)) {
        cast(product.m, product.n, activation);
    }
    if (pass != Pass::weight_gradient && !weight_is_cast) {
        cast(product.k, product.n, weight);
    }
    return cost;
}

}  // namespace bucketwise
