#include "hw/nccl/nccl_library.h"

namespace bucketwise {

const OpenedLibrary& NcclLibrary::file() {
    static const OpenedLibrary library("NCCL", "libnccl.so." + std::to_string(NCCL_MAJOR));
    return library;
}

const NcclLibrary& nccl() {
    static const NcclLibrary functions;
    return functions;
}

}  // namespace bucketwise
