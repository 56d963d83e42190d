#include "cli/ranks/backends.h"

#include "hw/gloo/gloo_backend.h"
#include "hw/nccl/nccl_backend.h"
#include "sim/base/error.h"

namespace bucketwise {

namespace {

const Backend* backend_named(const std::string& name, const std::string& option) {
    for (const Backend* const backend : {&gloo_backend(), &nccl_backend()}) {
        if (backend->name() == name) {
            return backend;
        }
    }
    throw InputError(option, "", "gloo or nccl", "\"" + name + "\"");
}

}  // namespace

std::vector<OptionText> backend_rows(BackendOptions& options) {
    return {{"backend",
             "gloo: on any CPU; nccl: on NVIDIA GPUs, one for each rank",
             {options.backend, backend_named, "gloo"}},
            {"share-gpu",
             "nccl: several ranks may use one GPU; shows that all works, not how fast a link is",
             options.request.share_gpu},
            {"ctas",
             "nccl: most thread blocks (CTAs) of a collective; default: NCCL's choice",
             {options.request.ctas, cta_numbers}}};
}

}  // namespace bucketwise
