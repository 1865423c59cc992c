#include "server/responses/input_items.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "server/http/api_error.h"
#include "server/openai/ordered_json.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

Json item_part(const Json& part, const std::string& path) {
  if (!part.is_object()) {
    reject(path, "an object");
  }
  const std::string type = text_at(part, "type", path);
  if (type == "refusal") {
    return {{"type", "text"}, {"text", text_at(part, "refusal", path)}};
  }
  if (type != "input_text" && type != "output_text" && type != "text") {
    throw ApiError(400,
                   fmt::format("{}.type: {} is not supported: this model reads text", path, type),
                   path + ".type", "unsupported_value");
  }
  return {{"type", "text"}, {"text", text_at(part, "text", path)}};
}

// Text, or parts of text.
Json content_of(const Json& item, const char* key, const std::string& path) {
  const std::string where = fmt::format("{}.{}", path, key);
  if (item.contains(key) && item[key].is_string()) {
    return item[key];
  }
  if (!item.contains(key) || !item[key].is_array()) {
    reject(where, "a string or an array of parts");
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < item[key].size(); ++i) {
    parts.push_back(item_part(item[key][i], fmt::format("{}[{}]", where, i)));
  }
  return parts;
}

std::string thought_of(const Json& item) {
  std::string thought;
  for (const char* key : {"content", "summary"}) {
    if (!thought.empty() || !item.contains(key) || !item[key].is_array()) {
      continue;
    }
    for (const Json& part : item[key]) {
      const Json text = part.is_object() ? part.value("text", Json()) : Json();
      thought += text.is_string() ? text.get<std::string>() : "";
    }
  }
  return thought;
}

// The assistant's message for an item: the last message if it is the assistant's, else a new one.
Json& answer(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  }
  return messages.back();
}

bool is_empty_text(const Json& content) {
  return content.is_string() && content.get_ref<const std::string&>().empty();
}

void add_message(const Json& item, const std::string& path, Json& messages) {
  const std::string role = text_at(item, "role", path);
  Json content = content_of(item, "content", path);
  const bool goes_on = role == "assistant" && !messages.empty() &&
                       messages.back()["role"] == "assistant" &&
                       is_empty_text(messages.back()["content"]);
  if (goes_on) {
    messages.back()["content"] = std::move(content);
  } else {
    messages.push_back({{"role", role}, {"content", std::move(content)}});
  }
}

}  // namespace

Json input_items(const Json& input) {
  if (input.is_string()) {
    return Json::array({{{"type", "message"}, {"role", "user"}, {"content", input}}});
  }
  if (!input.is_array() || input.empty()) {
    reject("input", "a string, or an array of at least one item");
  }
  return input;
}

void add_messages(const Json& items, Json& messages) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Json& item = items[i];
    const std::string path = fmt::format("input[{}]", i);
    if (!item.is_object()) {
      reject(path, "an object");
    }
    const std::string type = item.contains("type") ? text_at(item, "type", path) : "message";
    if (type == "message") {
      add_message(item, path, messages);
    } else if (type == "function_call") {
      Json function{{"name", text_at(item, "name", path)},
                    {"arguments", text_at(item, "arguments", path)}};
      answer(messages)["tool_calls"].push_back({{"id", text_at(item, "call_id", path)},
                                                {"type", "function"},
                                                {"function", std::move(function)}});
    } else if (type == "function_call_output") {
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", text_at(item, "call_id", path)},
                          {"content", content_of(item, "output", path)}});
    } else if (type == "reasoning") {
      const std::string thought = thought_of(item);
      if (!thought.empty()) {
        messages.push_back(
            {{"role", "assistant"}, {"content", ""}, {"reasoning_content", thought}});
      }
    } else {
      throw ApiError(400, fmt::format("{}.type: {} is not supported", path, type), path + ".type",
                     "unsupported_value");
    }
  }
}

}  // namespace winnow::server
