#include "hw/rank/communicator.h"

namespace bucketwise {

std::string_view name_of(AllReduceImplementation implementation) {
    switch (implementation) {
        case AllReduceImplementation::library:
            return "library";
        case AllReduceImplementation::ring:
            return "ring";
        case AllReduceImplementation::direct:
            return "direct";
    }
    return {};
}

}  // namespace bucketwise
