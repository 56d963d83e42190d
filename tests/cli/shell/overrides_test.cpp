#include "cli/shell/scenario_document.h"

#include "sim/base/json_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Json after(const std::string& assignment) {
    Json document = Json::parse(R"({"cluster": {"ranks": 2}, "list": [1, 2], "a/b": 0})");
    apply_override(document, assignment);
    return document;
}

TEST_CASE("a value is set at its pointer, as JSON or else as a string") {
    CHECK(after("/cluster/ranks=8")["cluster"]["ranks"] == 8);
    CHECK(after("/cluster/link=links/x.json")["cluster"]["link"] == "links/x.json");
    CHECK(after("/cluster={\"ranks\": 3}")["cluster"] == Json{{"ranks", 3}});
    CHECK(after("/list/1=9")["list"] == Json{1, 9});
    CHECK(after("/a~1b=1")["a/b"] == 1);
    CHECK(after("/step/accumulation=4")["step"]["accumulation"] == 4);  // made on the way
    CHECK(after("/name=a=b")["name"] == "a=b");
}

TEST_CASE("places that cannot be set are refused") {
    for (const char* assignment : {"/list/2=1", "/list/x=1", "/list/-=1", "/cluster/ranks/x=1",
                                   "cluster=1", "=1", "/a", "/list/99999999999999999999=1"}) {
        INFO(assignment);
        CHECK_THROWS_AS(after(assignment), InputError);
    }
}

}  // namespace
}  // namespace bucketwise
