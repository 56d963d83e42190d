#include "sim/text/foreign_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

namespace bucketwise {
namespace {

constexpr std::string_view dots = "...";

struct Character {
    std::string_view bytes;
    std::optional<char32_t> code;  // none: a byte that is no UTF-8
};

struct Length {
    std::size_t bytes;
    unsigned char mask;  // of the first byte's own bits
    char32_t least;      // what needs so many bytes
};

// By the first byte (RFC 3629); none: no character begins with it.
std::optional<Length> length_of(unsigned char first) {
    if (first < 0x80) {
        return Length{1, 0x7F, 0};
    }
    if ((first & 0xE0) == 0xC0) {
        return Length{2, 0x1F, 0x80};
    }
    if ((first & 0xF0) == 0xE0) {
        return Length{3, 0x0F, 0x800};
    }
    if ((first & 0xF8) == 0xF0) {
        return Length{4, 0x07, 0x10000};
    }
    return std::nullopt;
}

// Precondition: there is one.
Character first_character(std::string_view text) {
    const Character none{text.substr(0, 1), std::nullopt};
    const auto first = static_cast<unsigned char>(text.front());
    const std::optional<Length> length = length_of(first);
    if (!length || length->bytes > text.size()) {
        return none;
    }
    char32_t code = first & length->mask;
    for (std::size_t i = 1; i < length->bytes; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte & 0xC0) != 0x80) {
            return none;
        }
        code = (code << 6U) | (byte & 0x3FU);
    }
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code < length->least || code > 0x10FFFF || is_surrogate) {
        return none;
    }
    return {text.substr(0, length->bytes), code};
}

bool steers(char32_t code) {
    struct Range {
        char32_t first;
        char32_t last;
    };
    // But for joiners, which scripts and pictures need, and signs that enclose numbers, which are
    // seen, all of Unicode's categories Cc, Cf, Zl and Zp.
    constexpr std::array<Range, 18> ranges{
        {{0x00, 0x1F},        // C0
         {0x7F, 0x9F},        // DEL and C1
         {0xAD, 0xAD},        // soft hyphen
         {0x061C, 0x061C},    // Arabic letter mark
         {0x180E, 0x180E},    // Mongolian vowel separator
         {0x200B, 0x200B},    // blank of no width
         {0x200E, 0x200F},    // marks of direction
         {0x2028, 0x202E},    // ends of lines; embeddings, overrides
         {0x2060, 0x2064},    // word joiner, invisible operators
         {0x2066, 0x206F},    // isolates, deprecated formats
         {0xFEFF, 0xFEFF},    // byte-order mark
         {0xFFF9, 0xFFFB},    // interlinear annotations
         {0x13430, 0x1343F},  // of hieroglyphs
         {0x1BCA0, 0x1BCA3},  // of shorthand
         {0x1D173, 0x1D17A},  // of music
         {0xE0001, 0xE0001},  // language tag
         {0xE0020, 0xE007F},  // tags
         {0xFFF0, 0xFFF8}}};  // unassigned, to be ignored
    for (const Range& range : ranges) {
        if (code >= range.first && code <= range.last) {
            return true;
        }
    }
    return false;
}

// JSON has sixteen bits in an escape: what needs more is a pair of surrogates.
std::string json_escape(char32_t code) {
    const auto value = static_cast<std::uint32_t>(code);
    constexpr std::uint32_t first_of_pairs = 0x10000;
    if (value < first_of_pairs) {
        return fmt::format("\\u{:04x}", value);
    }
    const std::uint32_t rest = value - first_of_pairs;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U), 0xDC00 + (rest & 0x3FFU));
}

std::string escape_of(const Character& character) {
    if (!character.code) {
        return fmt::format("\\x{:02x}", static_cast<unsigned char>(character.bytes.front()));
    }
    switch (*character.code) {
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        default:
            return json_escape(*character.code);
    }
}

// How many characters it begins with that are printable ASCII, and so stay in every form.
std::size_t plain_length(std::string_view text) {
    const auto* const end = std::ranges::find_if(text, [](char c) { return c < ' ' || c > '~'; });
    return static_cast<std::size_t>(end - text.begin());
}

// Each character as `shown` has it, as many as fit whole.
template <typename Shown>
std::string in_characters(std::string_view text, std::size_t longest, const Shown& shown) {
    std::string all;
    std::size_t fits_before_dots = 0;
    while (!text.empty() && all.size() <= longest) {
        const std::size_t plain = plain_length(text);
        if (plain > 0) {
            const std::size_t before_dots = longest - std::min(longest, dots.size());
            if (all.size() <= before_dots) {  // else that may be within the character before
                fits_before_dots = std::min(all.size() + plain, before_dots);
            }
            all += text.substr(0, plain);
            text.remove_prefix(plain);
            continue;
        }
        const Character character = first_character(text);
        text.remove_prefix(character.bytes.size());
        all += shown(character);
        if (all.size() + dots.size() <= longest) {
            fits_before_dots = all.size();
        }
    }
    return all.size() <= longest ? all : all.substr(0, fits_before_dots).append(dots);
}

}  // namespace

std::string shown_text(std::string_view text) {
    return in_characters(text, std::string::npos, [](const Character& character) {
        const bool stays = character.code && (!steers(*character.code) || *character.code == '\n' ||
                                              *character.code == '\t');
        return stays ? std::string(character.bytes) : escape_of(character);
    });
}

std::string shown_line(std::string_view text, std::size_t longest) {
    return in_characters(text, longest, [](const Character& character) {
        return character.code && !steers(*character.code) ? std::string(character.bytes)
                                                          : escape_of(character);
    });
}

std::string cut_text(std::string_view text, std::size_t longest) {
    return in_characters(text, longest, [](const Character& character) {
        return character.code && steers(*character.code) ? std::string(" ")
                                                         : std::string(character.bytes);
    });
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const Character character = first_character(text);
        if (!character.code) {
            return false;
        }
        text.remove_prefix(character.bytes.size());
    }
    return true;
}

std::string_view without_byte_order_mark(std::string_view text) {
    constexpr std::string_view mark = "\xef\xbb\xbf";
    return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace bucketwise
