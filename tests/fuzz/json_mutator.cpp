#include "tests/fuzz/json_mutator.h"

#include <array>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "sim/plan/strategy.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/device.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

using Random = std::minstd_rand;

// Around what the parser's bounds, bytes, MiB and picoseconds make of a number.
constexpr std::array telling_numbers = {0.0, 1.0,  2.0,  3.0,  10.0,   100.0,  1023.0, 1025.0,  //
                                        0.5, 1e-3, 1e-6, 1e-9, 1e3,    1e4,    1e5,    1e6,     //
                                        1e7, 1e9,  1e12, -1.0, 0x1p32, 0x1p50, 0x1p63, 1e300};

std::size_t below(std::size_t count, Random& random) {
    return random() % count;
}

void collect(Json& value, std::vector<Json*>& all) {
    all.push_back(&value);
    if (value.is_structured()) {
        for (Json& element : value) {
            collect(element, all);
        }
    }
}

// Every name that some key takes as its value.
std::vector<std::string> known_names() {
    std::vector<std::string> names{"link.json", "layers.0", "1.9",   "2.4",  "gpt2",
                                   "bert",      "llama",    "cs336", "fp16", "bf16"};
    for (const std::string_view more :
         {"ring direct recursive_halving_doubling double_binary_tree hierarchical",
          "float32 float16 bfloat16 float64 tfloat32", "overshoot strict per_gradient single",
          "forward reverse readiness in_order as_filled after_backward", "sgd sgd_momentum adam"}) {
        std::istringstream words{std::string(more)};
        names.insert(names.end(), std::istream_iterator<std::string>(words), {});
    }
    for (const Strategy strategy : every<Strategy>) {
        names.emplace_back(name_of(strategy));
    }
    for (const ShardedStrategy strategy : every<ShardedStrategy>) {
        names.emplace_back(name_of(strategy));
    }
    names.insert(names.end(), model_names().begin(), model_names().end());
    names.insert(names.end(), device_preset_names().begin(), device_preset_names().end());
    return names;
}

void mutate_number(Json& value, Random& random) {
    const auto number = value.get<double>();
    switch (below(6, random)) {
        case 0:
            value = telling_numbers[below(telling_numbers.size(), random)];
            break;
        case 1:
            value = number * static_cast<double>(2 + below(1000, random));
            break;
        case 2:
            value = number / static_cast<double>(2 + below(1000, random));
            break;
        case 3:
            value = number + 1;
            break;
        case 4:
            value = number - 1;
            break;
        default:
            value = below(1000, random);
    }
    const auto changed = value.get<double>();
    constexpr double exact_integers = 9007199254740992.0;  // 2^53
    if (changed > -exact_integers && changed < exact_integers &&
        changed == static_cast<double>(static_cast<std::int64_t>(changed))) {
        value = static_cast<std::int64_t>(changed);
    }
}

void mutate_array(Json& value, Random& random) {
    constexpr std::size_t most_elements = 64;
    if (value.empty()) {
        value.push_back(below(10, random));
        return;
    }
    const std::size_t index = below(value.size(), random);
    if (below(2, random) == 0 && value.size() < most_elements) {
        Json copy = value[index];
        if (copy.is_object() && copy.contains("name")) {
            copy["name"] = "n" + std::to_string(random());
        }
        value.push_back(std::move(copy));
    } else {
        value.erase(index);
    }
}

// Removes an entry or moves one in from anywhere else in the document, under a key it is known by
// there.
void mutate_object(Json& value, const std::vector<Json*>& all, Random& random) {
    if (!value.empty() && below(4, random) == 0) {
        value.erase(
            std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size(), random))));
        return;
    }
    const Json& other = *all[below(all.size(), random)];
    if (other.is_object() && !other.empty()) {
        const auto entry =
            std::next(other.begin(), static_cast<std::ptrdiff_t>(below(other.size(), random)));
        const std::string& key = entry.key();
        Json moved = entry.value();
        value[key] = std::move(moved);
    }
}

}  // namespace

void mutate_json(Json& document, std::uint32_t seed) {
    static const std::vector<std::string> names = known_names();
    Random random(seed);
    std::vector<Json*> all;
    collect(document, all);
    Json& value = *all[below(all.size(), random)];
    switch (value.type()) {
        case Json::value_t::object:
            mutate_object(value, all, random);
            break;
        case Json::value_t::array:
            mutate_array(value, random);
            break;
        case Json::value_t::string:
            value = names[below(names.size(), random)];
            break;
        case Json::value_t::boolean:
            value = !value.get<bool>();
            break;
        case Json::value_t::number_integer:
        case Json::value_t::number_unsigned:
        case Json::value_t::number_float:
            mutate_number(value, random);
            break;
        default:
            value = below(10, random);
    }
}

}  // namespace bucketwise

// libFuzzer knows these functions by their names.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Half the time the document changes as JSON, else as bytes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
    using namespace bucketwise;
    Json document = Json::parse(std::string_view(reinterpret_cast<const char*>(data), size),
                                nullptr, /*allow_exceptions=*/false);
    if (seed % 2 == 0 || document.is_discarded()) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    mutate_json(document, seed / 2);
    const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > max_size) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    std::copy(text.begin(), text.end(), data);
    return text.size();
}
// NOLINTEND(readability-identifier-naming)
