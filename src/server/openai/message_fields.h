// Request fields that define a chat's prompt.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/openai/json_fields.h"
#include "server/openai/tool_fields.h"
#include "tokenizer/chat_prompt.h"

namespace winnow::server {

/// How a chat becomes a prompt.
struct ChatPrompt {
  Conversation conversation;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // for the template
  std::vector<std::string> given_variables;  // names of those in chat_template_kwargs
  ToolRequest tools;
  std::optional<std::string> chat_template;  // instead of the model's
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

/// `ordered`: the same body with its keys in their original order. Throws ApiError.
ChatPrompt parse_chat_prompt(const Fields& fields, const nlohmann::ordered_json& ordered,
                             std::size_t most_variables);

/// Bytes of all texts in a value, including keys.
std::size_t text_bytes(const nlohmann::ordered_json& value);

}  // namespace winnow::server
