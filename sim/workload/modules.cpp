#include "sim/workload/modules.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace bucketwise {
namespace {

bool is_number(std::string_view text) {
    return !text.empty() &&
           std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "0" of a list, and torchvision's "encoder_layer_0".
bool is_numbered(std::string_view part) {
    constexpr std::string_view layer = "layer_";
    const std::size_t found = part.rfind(layer);
    return is_number(found == std::string_view::npos ? part : part.substr(found + layer.size()));
}

std::string_view list_of(std::string_view block) {
    return block.substr(0, block.rfind('.'));
}

}  // namespace

std::optional<std::string> block_of(const std::string& parameter) {
    for (std::size_t begin = 0; begin < parameter.size();) {
        const std::size_t dot = parameter.find('.', begin);
        if (dot == std::string::npos) {
            return std::nullopt;
        }
        if (is_numbered(std::string_view(parameter).substr(begin, dot - begin))) {
            return parameter.substr(0, dot);
        }
        begin = dot + 1;
    }
    return std::nullopt;
}

bool belongs_to(std::string_view name, std::string_view module) {
    return name.starts_with(module) && (name.size() == module.size() ||
                                        name[module.size()] == '.' || name[module.size()] == ' ');
}

std::vector<std::string> blocks_of(const std::vector<std::string>& parameters) {
    std::vector<std::string> blocks;
    std::set<std::string> known;
    for (const std::string& parameter : parameters) {
        if (auto block = block_of(parameter); block && known.insert(*block).second) {
            blocks.push_back(std::move(*block));
        }
    }
    return blocks;
}

std::vector<std::string> modules_with_parameters(const std::vector<std::string>& parameters) {
    std::vector<std::string> modules;
    std::set<std::string> known;
    for (const std::string& parameter : parameters) {
        const std::size_t dot = parameter.rfind('.');
        if (dot != std::string::npos && known.insert(parameter.substr(0, dot)).second) {
            modules.push_back(parameter.substr(0, dot));
        }
    }
    return modules;
}

std::vector<std::vector<std::string>> grouped_blocks(const std::vector<std::string>& blocks,
                                                     std::int64_t together) {
    std::vector<std::vector<std::string>> groups;
    for (const std::string& block : blocks) {
        const bool joins = together > 0 && !groups.empty() &&
                           std::ssize(groups.back()) < together &&
                           list_of(groups.back().front()) == list_of(block);
        if (joins) {
            groups.back().push_back(block);
        } else if (together > 0) {
            groups.push_back({block});
        }
    }
    return groups;
}

}  // namespace bucketwise
