#include "sim/plan/setting_place.h"

#include <charconv>

#include <fmt/format.h>

namespace bucketwise {
namespace {

constexpr std::int32_t any = 999'999;  // a part that was left out

}  // namespace

std::string version_text(const FrameworkVersion& version) {
    std::string text = std::to_string(version.major);
    for (const std::int32_t part : {version.minor, version.patch}) {
        text += part == any ? "" : fmt::format(".{}", part);
    }
    return text;
}

std::optional<FrameworkVersion> version_from(std::string_view text) {
    FrameworkVersion version{0, any, any};
    const std::array parts{&version.major, &version.minor, &version.patch};
    const char* at = text.data();
    const char* const end = at + text.size();
    for (std::int32_t* const part : parts) {
        std::int32_t number = 0;
        const auto [next, error] = std::from_chars(at, end, number);
        if (error != std::errc{} || number < 0 || number > any) {
            return std::nullopt;
        }
        *part = number;
        if (next == end) {
            return version;
        }
        if (*next != '.') {
            return std::nullopt;
        }
        at = next + 1;
    }
    return std::nullopt;
}

}  // namespace bucketwise
