#include "tokenizer/char_class.h"

#include <unictype.h>
#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// The last character of `text`, which must not be empty.
Utf8Step last_step(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) {
    --begin;
  }
  return utf8_step(text.substr(begin));
}

bool is_word(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Joiners, and alphabetic symbols: circled and squared letters.
      return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
             (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
             (code >= 0x1F170 && code <= 0x1F189);
  }
}

}  // namespace

bool is_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return code > 0x20 && code < 0x7F && !(code >= '0' && code <= '9') &&
           !((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

std::string_view script_of(char32_t code) {
  constexpr char32_t kLongVowel = 0x30FC;  // Common in Unicode
  const uc_script_t* const script = uc_script(code);
  if (script == nullptr || code == ' ') {
    return {};
  }
  const std::string_view name = script->name;
  return name == "Hiragana" || name == "Katakana" || code == kLongVowel ? "Han" : name;
}

std::size_t leading_space(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = utf8_step(text.substr(length));
    if (!is_space(step.code)) {
      break;
    }
    length += step.length;
  }
  return length;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = last_step(text.substr(0, text.size() - length));
    if (!is_space(step.code)) {
      break;
    }
    length += step.length;
  }
  return length;
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(utf8_step(text).code);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(last_step(text).code);
}

}  // namespace winnow
