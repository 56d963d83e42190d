// The schemas of scenarios and links and the tables of keys in scenarios/README.md are written from
// the tables that read them: bucketwise_sim_scenario_tests "[.write]" writes all three.
#include <map>
#include <sstream>
#include <string>

#include "sim/base/json_table.h"
#include "sim/link/link_keys.h"
#include "sim/scenario/sync_input.h"
#include "tests/catch.h"
#include "tests/schema_file.h"

namespace bucketwise {
namespace {

// By name of the file in scenarios/.
std::map<std::string, std::string> schemas() {
    return {
        {"scenario.schema.json", schema_text(schema_of(scenario_text()), "bucketwise scenario")},
        {"link.schema.json", schema_text(schema_of(link_text()), "bucketwise link file")}};
}

std::map<std::string_view, const ObjectText*> all_objects() {
    auto objects = objects_of(scenario_text());
    objects.merge(objects_of(link_text()));
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
            const std::string name = line.substr(mark.size(), line.rfind(" -->") - mark.size());
            written += reference_of(*objects.at(name));
            replaced = true;
        }
    }
    return written;
}

}  // namespace

TEST_CASE("schemas and reference of scenarios and links are what their tables of keys say") {
    for (const auto& [file, schema] : schemas()) {
        CHECK(scenario_file_text(file) == schema);
    }
    const std::string page = scenario_file_text("README.md");
    CHECK(page == with_references(page));
    for (const auto& [name, object] : all_objects()) {
        if (object->name != "sharding of fsdp" && object->name != "peak rates") {
            CHECK(page.find("<!-- keys: " + std::string(name) + " -->") != std::string::npos);
        }
    }
}

TEST_CASE("schemas and reference of scenarios and links are written", "[.write]") {
    const std::string page = with_references(scenario_file_text("README.md"));
    for (const auto& [file, schema] : schemas()) {
        write_scenario_file(file, schema);
    }
    write_scenario_file("README.md", page);
}

}  // namespace bucketwise
