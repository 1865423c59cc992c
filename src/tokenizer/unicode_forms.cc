#include "tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tokenizer/char_class.h"
#include "tokenizer/unicode_tables.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using Codes = std::vector<utf8proc_int32_t>;

// utf8proc drops U+11A7 after a Hangul syllable: it mistakes it for the first of the trailing
// consonants, which begin one code point later.
constexpr char32_t kBeforeTrailingConsonants = 0x11A7;

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Appends the full decomposition of a character.
void decompose(char32_t code, bool compatible, Codes& codes) {
  constexpr int kMost = 32;  // the longest, of U+FDFA, is 18
  utf8proc_int32_t parts[kMost];
  int boundary = 0;
  const int compatibility = compatible ? UTF8PROC_COMPAT : 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts, kMost,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | compatibility),
      &boundary);
  codes.insert(codes.end(), parts, parts + std::clamp<utf8proc_ssize_t>(count, 0, kMost));
}

// Sorts each run of combining characters by class. utf8proc can do this too, but in quadratic time.
void reorder(Codes& codes) {
  const auto combines = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
  auto run = codes.begin();
  while ((run = std::find_if(run, codes.end(), combines)) != codes.end()) {
    const auto end = std::find_if_not(run, codes.end(), combines);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
}

// Appends decomposed `codes`, or their composition, and clears them.
void flush(Codes& codes, bool composes, std::string& out) {
  reorder(codes);
  const auto size = static_cast<utf8proc_ssize_t>(codes.size());
  const auto count = composes
                         ? utf8proc_normalize_utf32(
                               codes.data(), size,
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE))
                         : size;
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(codes[static_cast<std::size_t>(i)]), out);
  }
  codes.clear();
}

template <class Function>
void for_each_character(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    function(step.code, text.substr(0, step.length));
    text.remove_prefix(step.length);
  }
}

}  // namespace

std::string to_form(UnicodeForm form, std::string_view text) {
  if (is_ascii(text)) {
    return std::string(text);
  }
  const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  std::string out;
  out.reserve(text.size());
  Codes codes;
  for_each_character(text, [&](char32_t code, std::string_view /*character*/) {
    if (combines_since_unicode_10(code) || (composes && code == kBeforeTrailingConsonants)) {
      flush(codes, composes, out);
      append_utf8(code, out);
    } else {
      decompose(code, compatible && !is_compatible_since_unicode_10(code), codes);
    }
  });
  flush(codes, composes, out);
  return out;
}

std::string without_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view character) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                      category == UTF8PROC_CATEGORY_ME;
    const bool was_mark = code == 0x1CF2 || code == 0x1CF3;  // until Unicode 12
    if ((!mark && !was_mark) || is_mark_since_unicode_10(code)) {
      out += character;
    }
  });
  return out;
}

std::string without_nonspacing_marks(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view character) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    if (category != UTF8PROC_CATEGORY_MN || is_mark_since_unicode_10(code)) {
      out += character;
    }
  });
  return out;
}

std::string without_controls(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view character) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    const bool is_line_space = code == '\t' || code == '\n' || code == '\r';
    // Format characters of scripts added after Unicode 9.
    const bool is_late = code == 0x890 || code == 0x891 || code == 0x8E2 || code == 0x110CD ||
                         (code >= 0x13430 && code <= 0x1343F);
    const bool is_control = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO ||
                            (category == UTF8PROC_CATEGORY_CF && !is_late) || code == 0xFFFD;
    if (is_line_space || (is_space(code) && !is_control)) {
      out += ' ';
    } else if (!is_control) {
      out += character;
    }
  });
  return out;
}

std::string with_chinese_apart(std::string_view text) {
  // As in BERT's original code, which omits a part of an extension.
  constexpr std::array<std::pair<char32_t, char32_t>, 7> kChinese{{{0x3400, 0x4DBF},
                                                                   {0x4E00, 0x9FFF},
                                                                   {0xF900, 0xFAFF},
                                                                   {0x20000, 0x2A6DF},
                                                                   {0x2A700, 0x2B81F},
                                                                   {0x2B920, 0x2CEAF},
                                                                   {0x2F800, 0x2FA1F}}};
  std::string out;
  for_each_character(text, [&](char32_t code, std::string_view character) {
    const bool chinese = std::ranges::any_of(
        kChinese, [&](const auto& range) { return code >= range.first && code <= range.second; });
    out.append(chinese ? 1 : 0, ' ').append(character).append(chinese ? 1 : 0, ' ');
  });
  return out;
}

std::string to_lower_case(std::string_view text) {
  constexpr char32_t kDottedI = 0x130;
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view /*character*/) {
    if (code == kDottedI) {
      out += "i\xCC\x87";
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
                  out);
    }
  });
  return out;
}

std::string normalize_nmt(std::string_view text) {
  const auto vanishes = [](char32_t code) {
    return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
  };
  const auto is_blank = [](char32_t code) {
    return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  };
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view character) {
    if (!vanishes(code)) {
      out += is_blank(code) ? std::string_view(" ") : character;
    }
  });
  return out;
}

}  // namespace winnow
