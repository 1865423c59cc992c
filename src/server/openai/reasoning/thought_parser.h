// An answer's text, taken apart into a thought and what is said, while it comes.
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
  /// What became certain with `text`.
  virtual Part push(std::string_view text) = 0;
  /// What was held back: no more is coming.
  virtual Part finish() = 0;
  /// Whether the last text ended within a thought.
  [[nodiscard]] virtual bool thinks() const = 0;
};

/// `format` must outlive the parser.
std::unique_ptr<ThoughtParser> make_thought_parser(const ThoughtFormat& format, ThoughtStart start);

}  // namespace winnow::server
