// scenarios/scenario.schema.json and the tables of keys in scenarios/README.md are written from the
// tables that read scenarios: bucketwise_sim_scenario_tests "[.write]" writes both.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "sim/base/json_table.h"
#include "sim/scenario/sync_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

const std::filesystem::path folder = BUCKETWISE_SCENARIO_DIR;

std::string text_of(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
}

std::string scenario_schema() {
    Json schema = schema_of(scenario_text());
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["title"] = "bucketwise scenario";
    return schema.dump(1) + "\n";
}

// By name, all tables that a scenario leads to.
std::map<std::string, const ObjectText*, std::less<>> all_objects() {
    std::map<std::string, const ObjectText*, std::less<>> objects;
    const auto add = [&](const ObjectText& object, const auto& self) -> void {
        objects.emplace(object.name, &object);
        for (const KeyText& key : object.keys) {
            for (const ObjectText* below : key.value.objects) {
                self(*below, self);
            }
        }
    };
    add(scenario_text(), add);
    return objects;
}

// The page with the table behind each "<!-- keys: NAME -->" written anew.
std::string with_references(const std::string& page) {
    const auto objects = all_objects();
    const std::string mark = "<!-- keys: ";
    std::istringstream lines(page);
    std::string written;
    bool replaced = false;
    for (std::string line; std::getline(lines, line);) {
        replaced = replaced && line.starts_with('|');
        if (!replaced) {
            written += line + '\n';
        }
        if (line.starts_with(mark)) {
            written += reference_of(
                *objects.at(line.substr(mark.size(), line.rfind(" -->") - mark.size())));
            replaced = true;
        }
    }
    return written;
}

}  // namespace

TEST_CASE("the scenario's schema and reference are what its tables of keys say") {
    CHECK(text_of("scenario.schema.json") == scenario_schema());
    const std::string page = text_of("README.md");
    CHECK(page == with_references(page));
    for (const auto& [name, object] : all_objects()) {
        if (object->name != "sharding of fsdp" && object->name != "peak rates") {
            CHECK(page.find("<!-- keys: " + name + " -->") != std::string::npos);
        }
    }
}

TEST_CASE("the scenario's schema and reference are written", "[.write]") {
    const std::string page = with_references(text_of("README.md"));
    std::ofstream(folder / "scenario.schema.json") << scenario_schema();
    std::ofstream(folder / "README.md") << page;
}

}  // namespace bucketwise
