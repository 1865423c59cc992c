// What a request asks of thoughts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/openai/json_fields.h"
#include "server/openai/message_fields.h"

namespace winnow::server {

struct ThoughtRequest {
  std::optional<int> budget;              // tokens of a thought
  bool told = true;                       // as reasoning_content
  bool apart = true;                      // from the content
  std::vector<std::string> for_template;  // fields that only the template can honour
  bool wanted = false;                    // one of them asks for more than no thoughts
  bool lenient = false;                   // a template without a place for them is no error
};

/// Reads the fields; what is for the template becomes variables of `prompt`.
ThoughtRequest parse_thoughts(const Fields& fields, ChatPrompt& prompt);

/// The variables of a prompt that asks for the contrary: what a template makes of them shows
/// whether it knows any.
nlohmann::ordered_json other_thoughts(nlohmann::ordered_json variables);

}  // namespace winnow::server
