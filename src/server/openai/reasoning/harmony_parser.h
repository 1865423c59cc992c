// Parses gpt-oss's answers (Harmony): several messages, each in a channel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/openai/reasoning/thought_parser.h"

namespace winnow::server {

/// <|channel|>analysis<|message|>THOUGHT<|end|><|start|>assistant<|channel|>final<|message|>TEXT.
/// For a message to a function, the content has " to=NAME<|message|>ARGUMENTS<|call|>", which the
/// parser of calls reads. Text outside messages is content.
class HarmonyParser : public ThoughtParser {
 public:
  explicit HarmonyParser(ThoughtStart start);

  Part push(std::string_view text) override;
  Part finish() override;
  [[nodiscard]] bool thinks() const override { return place_ == Place::thought; }

 private:
  enum class Place : std::uint8_t { header, thought, content, call };

  bool read_header(Part& part);
  bool read_message(Part& part);
  void begin(Place place, Part& part);
  void put(std::string_view text, Part& part) const;

  Place place_;
  bool has_thought_ = false;
  bool has_content_ = false;
  std::string pending_;
};

}  // namespace winnow::server
