#include "hw/gpu/runtime/opened_library.h"

#include <dlfcn.h>

#include <utility>

namespace bucketwise {
namespace {

// The loader's message: the file it looked for or in, and the reason.
std::string loading_error() {
    const char* error = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the loader's, by thread
    return error == nullptr ? "no reason given" : error;
}

}  // namespace

OpenedLibrary::OpenedLibrary(std::string name, const std::string& file)
    : name_(std::move(name)), library_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
        throw LibraryError(name_ + " is not found (" + loading_error() + ")");
    }
}

OpenedLibrary::Function OpenedLibrary::operator[](const char* function) const {
    void* address = ::dlsym(library_, function);
    if (address == nullptr) {
        throw LibraryError(name_ + " is not usable (" + loading_error() + ")");
    }
    return Function(address);
}

}  // namespace bucketwise
