// How models mark their thoughts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow::server {

/// The marks around a thought at the beginning of an answer.
struct ThoughtFormat {
  std::string_view name;
  std::string_view begin;
  std::string_view end;
  std::string_view behind = {};  // always between a thought and the text after it
  /// The beginning of an answer without a call: the model writes messages to channels, one of which
  /// is for thoughts. "": there are no channels.
  std::string_view answer = {};
  [[nodiscard]] bool has_channels() const { return !answer.empty(); }
  /// Texts that may be special tokens of the model.
  [[nodiscard]] std::vector<std::string> marks() const;
};

/// The format of this name; null when there is none.
const ThoughtFormat* find_thought_format(std::string_view name);
/// All names, for messages.
std::string thought_format_names();
/// The format whose marks are tokens of the model; null if there is none.
const ThoughtFormat* thought_format_of(const Tokenizer& tokenizer);

/// How an answer begins, by the end of its prompt.
enum class ThoughtStart : std::uint8_t {
  free,    // as the model chooses: it may begin a thought
  open,    // within a thought, which the prompt began
  closed,  // after a thought, which the prompt ended: there is no more
};
ThoughtStart thought_start(const ThoughtFormat& format, std::string_view end_of_prompt);

}  // namespace winnow::server
