#include "cli/shell/size.h"

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("sizes have units, powers of 1000 or of 1024") {
    CHECK(parse_size("25MiB", "--x") == Bytes{26'214'400});
    CHECK(parse_size("64kB", "--x") == Bytes{64'000});
    CHECK(parse_size("0.5 MiB", "--x") == Bytes{524'288});
    CHECK(parse_size("1GiB", "--x") == Bytes{1 << 30});
    CHECK(parse_size("512B", "--x") == Bytes{512});
    CHECK(parse_sizes("1MiB,25MiB", "--x") == std::vector<Bytes>{{1 << 20}, {25 << 20}});
}

TEST_CASE("what is no size is refused with the option's name") {
    for (const char* text : {"", "25", "MiB", "-1MiB", "0MiB", "0.1B", "nanMiB", "infMiB",
                             "1e30GiB", "25mib", "25MiBs", "0x10B", "1MiB,", ",1MiB", "1 2MiB"}) {
        INFO(text);
        CHECK_THROWS_AS(parse_sizes(text, "--x"), InputError);
    }
}

}  // namespace
}  // namespace bucketwise
