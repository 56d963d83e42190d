// A trace of tests/data, as it was recorded.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "import/source/inflate.h"
#include "tests/catch.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {

// `file` without ".json.gz", below tests/data.
inline ByteSource stored_trace(const std::string& file) {
    std::ifstream stream(BUCKETWISE_TEST_DATA_DIR "/" + file + ".json.gz", std::ios::binary);
    INFO(file);
    REQUIRE(stream);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    return inflated(text_source(bytes, 1 << 16), file);
}

}  // namespace bucketwise
