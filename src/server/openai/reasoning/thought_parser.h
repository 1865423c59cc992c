// An answer's text, taken apart into a thought and what is said, while it comes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/openai/reasoning/thought_format.h"

namespace winnow::server {

/// White space around the marks belongs to neither.
class ThoughtParser {
 public:
  struct Part {
    std::string thought;
    std::string content;
  };

  /// `format` must outlive this.
  ThoughtParser(const ThoughtFormat& format, ThoughtStart start);

  /// What became certain with `text`.
  Part push(std::string_view text);
  /// What was held back: no more is coming.
  Part finish();
  /// Whether the last text ended within a thought.
  [[nodiscard]] bool thinks() const { return place_ == Place::thought; }

 private:
  enum class Place : std::uint8_t { start, thought, behind, content };

  void read_start();
  void read_thought(Part& part);

  const ThoughtFormat* format_;
  Place place_;
  bool began_ = false;  // the thought has had a text
  std::string pending_;
};

}  // namespace winnow::server
