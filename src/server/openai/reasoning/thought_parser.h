// Splits an answer's text into thoughts and content while it arrives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/openai/reasoning/thought_format.h"

namespace winnow::server {

class ThoughtParser {
 public:
  struct Part {
    std::string thought;
    std::string content;
  };

  virtual ~ThoughtParser() = default;
  /// Returns the text that became final with `text`.
  virtual Part push(std::string_view text) = 0;
  /// Returns the text that was held back; call it at the end.
  virtual Part finish() = 0;
  /// Whether the last text ended within a thought.
  [[nodiscard]] virtual bool thinks() const = 0;
};

/// `format` must outlive the parser.
std::unique_ptr<ThoughtParser> make_thought_parser(const ThoughtFormat& format, ThoughtStart start);

}  // namespace winnow::server
