// Upper and lower case, and the classes of characters.
#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

enum class Case : std::uint8_t { upper, lower, title };

/// Handles letters that become several characters in another case; utf8proc maps single ones only.
void append_cased(char32_t code, Case wanted, std::string& out) {
  constexpr char32_t kSharpS = 0xDF;
  constexpr char32_t kDottedI = 0x130;
  if (code == kSharpS && wanted != Case::lower) {
    out += wanted == Case::upper ? "SS" : "Ss";
  } else if (code == kDottedI && wanted == Case::lower) {
    out += "i\xCC\x87";
  } else {
    const auto c = static_cast<utf8proc_int32_t>(code);
    const utf8proc_int32_t cased = wanted == Case::upper   ? utf8proc_toupper(c)
                                   : wanted == Case::lower ? utf8proc_tolower(c)
                                                           : utf8proc_totitle(c);
    append_utf8(static_cast<char32_t>(cased), out);
  }
}

template <class Function>
void for_each_code(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    function(step.code);
    text.remove_prefix(step.length);
  }
}

std::string cased(std::string_view text, Case wanted) {
  std::string out;
  out.reserve(text.size());
  for_each_code(text, [&](char32_t code) { append_cased(code, wanted, out); });
  return out;
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_cased(char32_t code) {
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

bool is_alpha(char32_t code) {
  const utf8proc_category_t c = category(code);
  return is_cased(code) || c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_of(char32_t code, Class wanted) {
  switch (wanted) {
    case Class::upper:
      return category(code) == UTF8PROC_CATEGORY_LU;
    case Class::lower:
      return category(code) == UTF8PROC_CATEGORY_LL;
    case Class::digit:
      return is_digit(code);
    case Class::numeric:
      return is_digit(code) || category(code) == UTF8PROC_CATEGORY_NL ||
             category(code) == UTF8PROC_CATEGORY_NO;
    case Class::alpha:
      return is_alpha(code);
    case Class::alnum:
      return is_alpha(code) || is_digit(code);
    case Class::space:
      return is_space(code);
  }
  return false;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return cased(text, Case::upper);
}
std::string to_lower(std::string_view text) {
  return cased(text, Case::lower);
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_code(text, [&](char32_t code) {
    append_cased(code, category(code) == UTF8PROC_CATEGORY_LU ? Case::lower : Case::upper, out);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) {
    return {};
  }
  const std::size_t first = utf8_length(text.front());
  return cased(text.substr(0, first), Case::title) + to_lower(text.substr(first));
}

std::string title_case(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_code(text, [&](char32_t code) {
    append_cased(code, in_word ? Case::lower : Case::title, out);
    in_word = is_cased(code);
  });
  return out;
}

std::string title_words(std::string_view text) {
  constexpr std::u32string_view kBefore = U"-({[<";
  std::string out;
  bool in_word = false;
  for_each_code(text, [&](char32_t code) {
    append_cased(code, in_word ? Case::lower : Case::upper, out);
    in_word = !is_space(code) && kBefore.find(code) == std::u32string_view::npos;
  });
  return out;
}

bool is_all(std::string_view text, Class wanted) {
  const bool only_cased = wanted == Class::upper || wanted == Class::lower;
  bool any = false;
  bool all = true;
  for_each_code(text, [&](char32_t code) {
    if (!only_cased || is_cased(code)) {
      any = true;
      all = all && is_of(code, wanted);
    }
  });
  return any && all;
}

}  // namespace winnow::jinja
