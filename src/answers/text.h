// What several tasks do with text.
#pragma once

#include <string>
#include <string_view>

namespace winnow::answers {

/// '0' to '9', whatever the locale.
constexpr bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

/// Replaces each `what`, which must not be empty, from left to right. What `by` brings in is not
/// searched.
void replace_all(std::string& text, std::string_view what, std::string_view by);

}  // namespace winnow::answers
