// Text that somebody else wrote, within documents that are marked up: nothing in it means anything
// there.
#pragma once

#include <string>
#include <string_view>

namespace bucketwise {

// On one line of Markdown as GitHub reads it, in a table too.
std::string markdown_escaped(std::string_view foreign);

// In HTML and XML, as text and within quotes.
std::string markup_escaped(std::string_view foreign);

}  // namespace bucketwise
