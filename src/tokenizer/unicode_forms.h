// Unicode's normalization forms, and other mappings of characters that normalizers make.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

enum class UnicodeForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// All take valid UTF-8. As of Unicode 9, as Hugging Face's normalizer (unicode_tables.h).

std::string to_form(UnicodeForm form, std::string_view text);
/// Without marks: what decomposition makes of accents.
std::string without_marks(std::string_view text);
/// Without marks that take no space of their own (Mn): BertNormalizer's "strip_accents".
std::string without_nonspacing_marks(std::string_view text);
/// Without control, format and private characters, and with a space for every sort of white space:
/// BertNormalizer's "clean_text".
std::string without_controls(std::string_view text);
/// With spaces around each ideograph of Chinese: BertNormalizer's "handle_chinese_chars".
std::string with_chinese_apart(std::string_view text);
/// Each character by itself: a sigma at a word's end is like any other.
std::string to_lower_case(std::string_view text);
/// Without control characters, and with a space for every sort of white space: "Nmt".
std::string normalize_nmt(std::string_view text);

}  // namespace winnow
