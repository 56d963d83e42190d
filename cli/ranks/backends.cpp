#include "cli/ranks/backends.h"

#include <array>

#include "cli/shell/option_values.h"
#include "hw/gloo/gloo_backend.h"
#include "hw/nccl/nccl_backend.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {

namespace po = boost::program_options;

void add_backend_options(po::options_description& options) {
    add_options(
        options,
        {{"backend", "gloo: on any CPU; nccl: on NVIDIA GPUs, one for each rank", "gloo"},
         {"share-gpu",
          "nccl: let several ranks use one GPU; shows that all works, never how fast a link is",
          no_value},
         {"ctas", "nccl: most thread blocks (CTAs) of one collective; default: NCCL's choice"}});
}

namespace {

std::array<const Backend*, 2> all_backends() {
    return {&gloo_backend(), &nccl_backend()};
}

}  // namespace

std::vector<std::string> backend_names() {
    return transformed(all_backends(),
                       [](const Backend* backend) { return std::string(backend->name()); });
}

const Backend& requested_backend(const po::variables_map& values) {
    const std::string& name = text_value(values, "backend");
    for (const Backend* backend : all_backends()) {
        if (backend->name() == name) {
            return *backend;
        }
    }
    throw InputError("--backend", "", "gloo or nccl", "\"" + name + "\"");
}

std::int64_t read_ctas(const std::string& text, const std::string& option) {
    constexpr std::int64_t most_ctas = 1024;
    return whole_number(text, option, {1, most_ctas});
}

BackendRequest backend_request(const po::variables_map& values) {
    BackendRequest request;
    request.share_gpu = values.count("share-gpu") != 0;
    if (values.count("ctas") != 0) {
        request.ctas = read_ctas(text_value(values, "ctas"), "--ctas");
    }
    return request;
}

}  // namespace bucketwise
