// Parses a thought between marks at the beginning of an answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/openai/reasoning/thought_parser.h"

namespace winnow::server {

/// White space around the marks is dropped.
class MarkedThoughtParser : public ThoughtParser {
 public:
  /// `format` must outlive this.
  MarkedThoughtParser(const ThoughtFormat& format, ThoughtStart start);

  Part push(std::string_view text) override;
  Part finish() override;
  [[nodiscard]] bool thinks() const override { return place_ == Place::thought; }

 private:
  enum class Place : std::uint8_t { start, thought, behind, content };

  void read_start();
  void read_thought(Part& part);

  const ThoughtFormat* format_;
  Place place_;
  bool began_ = false;  // the thought is not empty
  std::string pending_;
};

}  // namespace winnow::server
