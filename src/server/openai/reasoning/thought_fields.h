// Request fields about reasoning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/openai/json_fields.h"
#include "server/openai/message_fields.h"

namespace winnow::server {

struct ThoughtRequest {
  std::optional<int> budget;              // maximum tokens of thoughts
  bool told = true;                       // returned as reasoning_content
  bool apart = true;                      // separate from the content
  std::vector<std::string> for_template;  // fields that only the template can use
  bool wanted = false;                    // some field asks for more than no reasoning
  bool lenient = false;                   // no error if the template does not support it
};

/// Reads the fields; those for the template become variables of `prompt`.
ThoughtRequest parse_thoughts(const Fields& fields, ChatPrompt& prompt);

/// The variables with the opposite request: if the template renders both alike, it knows
/// none of them.
nlohmann::ordered_json other_thoughts(nlohmann::ordered_json variables);

}  // namespace winnow::server
