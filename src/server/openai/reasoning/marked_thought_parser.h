// A thought between marks, with which an answer begins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/openai/reasoning/thought_parser.h"

namespace winnow::server {

/// White space around the marks belongs to neither.
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
  bool began_ = false;  // the thought has had a text
  std::string pending_;
};

}  // namespace winnow::server
