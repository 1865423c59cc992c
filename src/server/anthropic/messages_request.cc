#include "server/anthropic/messages_request.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/ordered_json.h"
#include "server/openai/prompt_limits.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

// The chat parser refuses blocks of a kind that it has no parts for, by name.
Json block_part(const Json& block, const std::string& path) {
  const std::string type = text_at(block, "type", path);
  const Json source = block.value("source", Json());
  if (const Json citations = block.value("citations", Json());
      citations.is_object() && citations.value("enabled", Json()) == true) {
    throw ApiError(400, path + ".citations are not supported", path + ".citations",
                   "unsupported_parameter");
  }
  if (type == "document" && source.is_object() && source.value("type", Json()) == "text") {
    std::string text;
    for (const char* about : {"title", "context"}) {
      if (block.contains(about) && !block[about].is_null()) {
        text += text_at(block, about, path) + "\n";
      }
    }
    return {{"type", "text"}, {"text", text + text_at(source, "data", path + ".source")}};
  }
  if (type == "text") {
    return {{"type", "text"}, {"text", text_at(block, "text", path)}};
  }
  throw ApiError(400,
                 fmt::format("{}.type: {} is not supported: this model reads text", path, type),
                 path + ".type", "unsupported_value");
}

// A text, or blocks of text.
Json content_of(const Json& value, const std::string& path) {
  if (value.is_string()) {
    return value;
  }
  if (!value.is_array()) {
    reject(path, "a string or an array of blocks");
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", path, i);
    if (!value[i].is_object()) {
      reject(where, "an object");
    }
    parts.push_back(block_part(value[i], where));
  }
  return parts;
}

// The result of a tool.
Json result_of(const Json& block, const std::string& path) {
  Json content = block.contains("content") && !block["content"].is_null()
                     ? content_of(block["content"], path + ".content")
                     : Json("");
  Json result{{"role", "tool"},
              {"tool_call_id", text_at(block, "tool_use_id", path)},
              {"content", std::move(content)}};
  if (block.value("is_error", Json()) == true) {
    result["is_error"] = true;  // templates may say so
  }
  return result;
}

Json call_of(const Json& block, const std::string& path) {
  const Json input = block.value("input", Json::object());
  if (!input.is_object()) {
    reject(path + ".input", "an object");
  }
  return {{"id", text_at(block, "id", path)},
          {"type", "function"},
          {"function", {{"name", text_at(block, "name", path)}, {"arguments", input}}}};
}

// A message with blocks becomes one message, after the tool results that it contains.
void add_blocks(const std::string& role, const Json& blocks, const std::string& path,
                Json& messages) {
  Json message{{"role", role}, {"content", Json::array()}};
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string where = fmt::format("{}.content[{}]", path, i);
    const std::string type = text_at(blocks[i], "type", where);
    if (type == "tool_result") {
      messages.push_back(result_of(blocks[i], where));
    } else if (type == "tool_use") {
      message["tool_calls"].push_back(call_of(blocks[i], where));
    } else if (type == "thinking") {
      message["reasoning_content"] =
          message.value("reasoning_content", "") + text_at(blocks[i], "thinking", where);
    } else if (type != "redacted_thinking") {
      message["content"].push_back(block_part(blocks[i], where));
    }
  }
  if (!message["content"].empty() || message.contains("tool_calls") ||
      message.contains("reasoning_content")) {
    messages.push_back(std::move(message));
  }
}

Json messages_of(const Json& body) {
  Json messages = Json::array();
  if (body.contains("system") && !body["system"].is_null()) {
    messages.push_back({{"role", "system"}, {"content", content_of(body["system"], "system")}});
  }
  const Json& given = body.contains("messages") ? body["messages"] : Json();
  if (given.empty()) {
    reject("messages", "an array of at least one message");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    const std::string role = text_at(given[i], "role", path);
    if (role != "user" && role != "assistant" && role != "system") {
      reject(path + ".role", "user or assistant");
    }
    const Json content = given[i].contains("content") ? given[i]["content"] : Json();
    if (content.is_array()) {
      add_blocks(role, content, path, messages);
    } else {
      messages.push_back({{"role", role}, {"content", content_of(content, path + ".content")}});
    }
  }
  return messages;
}

Json messages_tools(const Json& given) {
  Json tools = Json::array();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (const Json type = given[i].value("type", Json()); !type.is_null() && type != "custom") {
      throw ApiError(
          400,
          fmt::format("{}.type: {}: this server runs no tools of its own", path, json_text(type)),
          path + ".type", "unsupported_value");
    }
    Json function{{"name", text_at(given[i], "name", path)}};
    if (!given[i].value("input_schema", Json()).is_object()) {
      reject(path + ".input_schema", "an object");
    }
    for (const auto& [from, to] :
         {std::pair{"description", "description"}, std::pair{"input_schema", "parameters"},
          std::pair{"strict", "strict"}}) {
      if (given[i].contains(from)) {
        function[to] = given[i][from];
      }
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

void add_choice(const Json& given, Json& chat) {
  const std::string type = given.value("type", "");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", text_at(given, "name", "tool_choice")}}}};
  } else {
    reject("tool_choice.type", "auto, any, tool or none");
  }
  if (const Json off = given.value("disable_parallel_tool_use", Json()); !off.is_null()) {
    chat["parallel_tool_calls"] = !off.get<bool>();
  }
}

// Clients ask any model to think; for one that cannot, the field's name goes into a header.
void add_thinking(const Json& given, bool thinks, Json& chat, std::vector<std::string>& ignored) {
  const std::string type = given.value("type", "");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    reject("thinking.type", "enabled, adaptive or disabled");
  }
  if (!thinks) {
    if (type != "disabled") {
      ignored.emplace_back("thinking");
    }
    return;
  }
  chat["enable_thinking"] = type != "disabled";
  if (type == "enabled" && given.contains("budget_tokens")) {
    chat["thinking_token_budget"] = given["budget_tokens"];
  }
}

void add_format(const Json& format, const std::string& path, Json& chat) {
  if (format.value("type", "") != "json_schema" || !format.contains("schema")) {
    reject(path, "an object with type json_schema and a schema");
  }
  chat["response_format"] = {{"type", "json_schema"}, {"schema", format["schema"]}};
}

}  // namespace

CompletionRequest parse_messages_request(std::string_view text, bool counts, bool thinks,
                                         const RequestLimits& limits) {
  json parsed = parse_body(text);
  const double comparisons = key_comparisons(parsed);
  CheckedBody checked = check_fields(std::move(parsed), Endpoint::messages);
  check_items(checked, limits.context);
  const Json body = in_order(text, comparisons, {});
  const auto given = [&](const char* name) { return checked.value.contains(name); };
  Json chat{{"messages", messages_of(body)}};
  for (const auto& [from, to] :
       {std::pair{"model", "model"}, std::pair{"max_tokens", "max_tokens"},
        std::pair{"stop_sequences", "stop"}, std::pair{"temperature", "temperature"},
        std::pair{"top_p", "top_p"}, std::pair{"top_k", "top_k"}, std::pair{"stream", "stream"}}) {
    if (given(from)) {
      chat[to] = body[from];
    }
  }
  const Json& last = chat["messages"].back();
  if (last["role"] == "assistant" && !last["content"].empty() && !last.contains("tool_calls")) {
    chat["continue_final_message"] = true;
  }
  if (!counts && !given("max_tokens")) {
    reject("max_tokens", "an integer from 1 up");
  }
  if (given("tools")) {
    chat["tools"] = messages_tools(body["tools"]);
  }
  if (given("tool_choice")) {
    add_choice(body["tool_choice"], chat);
  }
  if (given("thinking")) {
    add_thinking(body["thinking"], thinks, chat, checked.ignored);
  }
  std::string format_name = "output_format";
  if (given("output_format")) {
    add_format(body["output_format"], format_name, chat);
  }
  if (given("output_config")) {
    const Json& config = body["output_config"];
    if (config.contains("format") && !config["format"].is_null()) {
      format_name = "output_config.format";
      add_format(config["format"], format_name, chat);
    }
    if (config.contains("effort") && !config["effort"].is_null()) {
      checked.ignored.emplace_back("output_config.effort");
    }
  }
  take_chat_fields(body, Endpoint::messages, checked.ignored, chat);
  if (chat.value("stream", false)) {
    chat["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  }
  std::map<std::string, std::string> names{{"stop", "stop_sequences"},
                                           {"response_format", format_name},
                                           {"thinking_token_budget", "thinking.budget_tokens"},
                                           {"enable_thinking", "thinking"},
                                           {"tool_choice.function", "tool_choice"}};
  for (std::size_t i = 0; given("tools") && i < body["tools"].size(); ++i) {
    const std::string tool = fmt::format("tools[{}]", i);
    names[tool + ".function"] = tool;
    names[tool + ".function.parameters"] = tool + ".input_schema";
  }
  CompletionRequest request = parse_chat(std::move(chat), limits, names);
  request.thoughts.lenient = true;  // clients ask any model to think
  request.ignored.insert(request.ignored.end(), checked.ignored.begin(), checked.ignored.end());
  return request;
}

}  // namespace winnow::server
