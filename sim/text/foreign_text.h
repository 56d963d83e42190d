// Text that somebody else wrote, such as names in files, cells of tables and files' own names, as
// it may be shown or passed on. Control characters (C0, DEL and C1, whose U+009B alone begins a
// command to a terminal) steer a terminal, marks of direction make text look like another, and a
// line's end within a name makes lines that nobody wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bucketwise {

// The same with such characters as escapes, "\u001b", and bytes that are no UTF-8 as "\xff". Ends
// of lines and tabs stay. As JSON has the same escapes, a JSON document means what it did.
std::string shown_text(std::string_view text);

// The same on one line: ends of lines and tabs are "\n" and "\t". At most so many bytes; what is
// longer ends in "...".
std::string shown_line(std::string_view text, std::size_t longest);

// As a file may have it: such characters are blanks. At most so many bytes, of whole characters.
std::string cut_text(std::string_view text, std::size_t longest);

// JSON holds nothing else; the name of a file may be anything.
bool is_utf8(std::string_view text);

// Without the byte-order mark that editors of Windows put before UTF-8.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace bucketwise
