// How models mark their thoughts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow::server {

/// The marks around a thought, with which an answer begins.
struct ThoughtFormat {
  std::string_view name;
  std::string_view begin;
  std::string_view end;
  std::string_view behind = {};  // always stands between a thought and what follows it
  /// What an answer begins with that is no call: the model writes messages into channels, of which
  /// thoughts are one. "": it just writes.
  std::string_view answer = {};
  [[nodiscard]] bool has_channels() const { return !answer.empty(); }
  /// The texts that may be special tokens of the model.
  [[nodiscard]] std::vector<std::string> marks() const;
};

/// The format of this name; null when there is none.
const ThoughtFormat* find_thought_format(std::string_view name);
/// All names, for messages.
std::string thought_format_names();
/// The format whose marks the model has tokens for; null when it has none.
const ThoughtFormat* thought_format_of(const Tokenizer& tokenizer);

/// How an answer begins, by the end of its prompt.
enum class ThoughtStart : std::uint8_t {
  free,    // as the model likes: it may begin a thought
  open,    // within a thought, which the prompt has begun
  closed,  // behind a thought that the prompt has ended: there is none
};
ThoughtStart thought_start(const ThoughtFormat& format, std::string_view end_of_prompt);

}  // namespace winnow::server
