#include "sim/text/marked_up.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("in HTML and XML text is nothing but text") {
    CHECK(markup_escaped("a < b & \"c\" > d") == "a &lt; b &amp; &quot;c&quot; &gt; d");
    CHECK(markup_escaped("\x1b[2J") == "\\u001b[2J");  // XML has no such character
    CHECK(markup_escaped("x\xef\xbf\xbf"
                         "y\xef\xbf\xbe") == "x?y?");         // nor U+FFFF and U+FFFE
    CHECK(markup_escaped("\xef\xbf\xbd") == "\xef\xbf\xbd");  // but U+FFFD
}

TEST_CASE("in Markdown text makes no list, no table, no code and no emphasis") {
    CHECK(markdown_escaped("  - a|b") == "\\- a\\|b");
    CHECK(markdown_escaped("1. *a* _b_ c_d") == "1\\. \\*a\\* \\_b\\_ c_d");
    CHECK(markdown_escaped("<b> & `c`") == "\\<b\\> \\& \\`c\\`");
    CHECK(markdown_escaped("a\nb") == "a b");
    CHECK(markdown_escaped("   ").empty());
}

}  // namespace
}  // namespace bucketwise
