#include "sim/scenario/pytorch_version.h"

#include <charconv>
#include <string>

namespace bucketwise {

PytorchVersion read_pytorch_version(const JsonPlace& place) {
    if (!place.value->is_string()) {
        place.fail("a PyTorch version as a string, such as \"2.4\"");
    }
    const std::string text = read_string(place);
    PytorchVersion version;
    const char* const end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, version.major);
    const bool has_minor = error == std::errc{} && dot != end && *dot == '.';
    const auto [rest, minor_error] =
        std::from_chars(has_minor ? dot + 1 : end, end, version.minor);
    if (minor_error != std::errc{} || (rest != end && *rest != '.' && *rest != '+') ||
        version.major == 0) {
        place.fail("a PyTorch version such as \"1.13\" or \"2.4\"");
    }
    return version;
}

}  // namespace bucketwise
