// Text functions that several tasks share.
#pragma once

#include <string>
#include <string_view>

namespace winnow::answers {

/// '0' to '9', in any locale.
constexpr bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

/// Replaces each `what`, which must not be empty, from left to right. Does not search the text that
/// it has inserted.
void replace_all(std::string& text, std::string_view what, std::string_view by);

}  // namespace winnow::answers
