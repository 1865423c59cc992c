// Unicode's normalization forms, and other character mappings of normalizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

enum class UnicodeForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// All take valid UTF-8, and follow Unicode 9, like Hugging Face's normalizer (unicode_tables.h).

std::string to_form(UnicodeForm form, std::string_view text);
/// Removes marks, such as decomposed accents.
std::string without_marks(std::string_view text);
/// Removes nonspacing marks (Mn): BertNormalizer's "strip_accents".
std::string without_nonspacing_marks(std::string_view text);
/// Removes control, format and private characters, and replaces every white space by a space:
/// BertNormalizer's "clean_text".
std::string without_controls(std::string_view text);
/// Adds spaces around each Chinese ideograph: BertNormalizer's "handle_chinese_chars".
std::string with_chinese_apart(std::string_view text);
/// Maps each character separately: no special case for a sigma at a word's end.
std::string to_lower_case(std::string_view text);
/// Removes control characters, and replaces every white space by a space: "Nmt".
std::string normalize_nmt(std::string_view text);

}  // namespace winnow
