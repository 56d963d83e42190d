// Settings typed into real wrappers, as settings check reads them, give the buckets that PyTorch
// formed behind them (tests/frameworks/record_wrappers.py).
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/settings/settings_file.h"
#include "sim/base/json.h"
#include "sim/base/transformed.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "tests/catch.h"
#include "tests/import/settings/source.h"

namespace bucketwise {
namespace {

Json recorded_wrappers() {
    std::ifstream in(std::string(BUCKETWISE_TEST_DATA_DIR) + "/frameworks/wrappers.json");
    REQUIRE(in);
    return Json::parse(in);
}

std::string python(const Json& value) {
    return value.is_boolean() ? (value.get<bool>() ? "True" : "False")
           : value.is_null()  ? "None"
                              : value.dump();
}

// As it stands in a script; empty: it is none that is read.
std::string script_of(const Json& one) {
    const std::string wrapper = one["wrapper"];
    const Json& typed = one["typed"];
    if (wrapper == "trainer") {
        Json arguments = typed;
        arguments["output_dir"] = "out";
        return arguments.dump();
    }
    const Json& arguments =
        wrapper == "mmengine" ? typed.value("model_wrapper_cfg", Json::object()) : typed;
    std::string text = wrapper == "mmengine" && !arguments.contains("type")
                           ? "type=\"MMDistributedDataParallel\", "
                           : "";
    for (const auto& [key, value] : arguments.items()) {
        text += wrapper == "ray" ? fmt::format("\"{}\": {}, ", key, python(value))
                                 : fmt::format("{}={}, ", key, python(value));
    }
    const std::map<std::string, std::string> calls{
        {"plain", "DistributedDataParallel(module, {})"},
        {"accelerate", "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({})])"},
        {"lightning", "Trainer(strategy=DDPStrategy({}))"},
        {"fabric", "Fabric(strategy=DDPStrategy({}))"},
        {"ray", "prepare_model(model, parallel_strategy_kwargs={{{}}})"},
        {"mmengine", "Runner(model_wrapper_cfg=dict({}))"}};
    const auto call = calls.find(wrapper);
    return call == calls.end() ? "" : fmt::format(fmt::runtime(call->second), text);
}

// Only what is read, and of that only numbers.
bool is_read(const Json& one) {
    Json typed = one["typed"];
    if (typed.contains("model_wrapper_cfg")) {
        typed = typed["model_wrapper_cfg"];
        typed.erase("type");
    }
    for (const auto& [key, value] : typed.items()) {
        const bool cap = key == "bucket_cap_mb" || key == "ddp_bucket_cap_mb";
        const bool flag = key == "find_unused_parameters" || key == "gradient_as_bucket_view" ||
                          key == "ddp_find_unused_parameters";
        const bool list = key == "bucket_cap_mb_list";
        if (!((cap && value.is_number() && value > 0) || (flag && value.is_boolean()) ||
              (list && value.is_array() && !value.empty()))) {
            return false;
        }
    }
    return !(typed.contains("bucket_cap_mb") && typed.contains("bucket_cap_mb_list"));
}

// Each script as a source: all of them in one file, line by line, so that Python starts once.
std::vector<Json> sources_of(const std::vector<std::string>& scripts) {
    std::string lines;
    std::vector<Json> sources;
    for (const std::string& script : scripts) {
        const bool is_json = script.front() == '{';
        lines += (is_json ? "" : script) + "\n";
        Json& source = sources.emplace_back();
        source[is_json ? "document" : "script"] = is_json ? Json::parse(script) : Json::array();
    }
    const Json read = testing::source_of(lines);
    for (const Json& call : read["script"]) {
        sources[call["line"].get<std::size_t>() - 1]["script"].push_back(call);
    }
    return sources;
}

TEST_CASE("what is typed into a wrapper gives the buckets that it really gave") {
    const Json file = recorded_wrappers();
    std::vector<Json> cases;
    std::vector<std::string> scripts;
    for (const Json& one : file["cases"]) {
        if (!one.contains("error") && one.contains("logging") && is_read(one) &&
            !script_of(one).empty()) {
            cases.push_back(one);
            scripts.push_back(script_of(one));
        }
    }
    const std::vector<Json> sources = sources_of(scripts);
    std::map<std::string, int> checked;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const Json& one = cases[i];
        const TypedSettings typed = read_typed_settings(sources[i], "script");
        SyncRequest request;
        const auto bytes = [](double mib) {
            return Bytes{static_cast<std::int64_t>(mib * static_cast<double>(bytes_per_mib))};
        };
        if (typed.value) {
            request.bucket_cap = bytes(*typed.value);
        }
        request.bucket_cap_list = transformed(typed.list, bytes);
        request.find_unused_parameters = typed.find_unused_parameters.value_or(false);
        const Json& model = file["models"][one["model"].get<std::string>()];
        std::vector<Gradient> gradients;
        for (const Json& numel : model["numel"]) {
            gradients.push_back({std::to_string(gradients.size()), numel});
        }
        const BucketPlan plan =
            make_plan(gradients, model["readiness"].get<std::vector<std::int32_t>>(),
                      settings_for(request).policy);
        const Json& logging = one["logging"];
        const Json& real = logging["rebuilt_bucket_sizes"].empty()
                               ? logging["bucket_sizes"]
                               : logging["rebuilt_bucket_sizes"];
        const Json sizes = transformed(plan.buckets, [](const Bucket& b) { return b.size.count; });
        INFO(one.dump() << "\n" << scripts[i]);
        CHECK(real == sizes);
        CHECK((logging["find_unused_parameters"] == 1) == request.find_unused_parameters);
        ++checked[one["wrapper"].get<std::string>()];
    }
    const std::map<std::string, int> all{{"accelerate", 17}, {"fabric", 20}, {"lightning", 20},
                                         {"mmengine", 29},   {"plain", 40},  {"ray", 20},
                                         {"trainer", 27}};
    CHECK(checked == all);
}

}  // namespace
}  // namespace bucketwise
