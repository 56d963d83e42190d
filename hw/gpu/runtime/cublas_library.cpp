#include "hw/gpu/runtime/cublas_library.h"

namespace bucketwise {

const OpenedLibrary& CublasLibrary::file() {
    static const OpenedLibrary library("cuBLAS",
                                       "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR));
    return library;
}

const CublasLibrary& cublas() {
    static const CublasLibrary functions;
    return functions;
}

}  // namespace bucketwise
