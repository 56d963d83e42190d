#include "sim/link/network/algorithm.h"

namespace bucketwise {

std::string_view name_of(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::all_reduce:
            return "all-reduce";
        case CollectiveKind::all_gather:
            return "all-gather";
        case CollectiveKind::reduce_scatter:
            return "reduce-scatter";
        case CollectiveKind::broadcast:
            return "broadcast";
    }
    return {};
}

std::string_view name_of(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::ring:
            return "ring";
        case Algorithm::direct:
            return "direct";
        case Algorithm::recursive_halving_doubling:
            return "recursive_halving_doubling";
        case Algorithm::double_binary_tree:
            return "double_binary_tree";
        case Algorithm::hierarchical:
            return "hierarchical";
        case Algorithm::nvls:
            return "nvls";
        case Algorithm::nccl:
            return "nccl";
    }
    return {};
}

}  // namespace bucketwise
