#include "server/openai/message_fields.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "server/http/api_error.h"
#include "server/openai/ordered_json.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

// A message's content: text, or parts of type text, which are joined. An assistant's message may
// have none, and so may one whose tokens are given.
std::string content_text(const Fields& message, const std::string& role, const std::string& path) {
  const json* content = message.find("content");
  if (content == nullptr && (role == "assistant" || message.find("token_ids") != nullptr)) {
    return {};
  }
  if (content == nullptr) {
    message.reject("content", "a string or an array of parts");
  }
  if (content->is_string()) {
    return content->get<std::string>();
  }
  if (!content->is_array()) {
    message.reject("content", "a string or an array of parts");
  }
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const json& part = (*content)[i];
    const std::string where = fmt::format("{}content[{}].", path, i);
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    if (!part.is_object()) {
      message.reject("content", "parts that are objects");
    }
    const Fields fields(part, where);
    const auto type = fields.text("type");
    if (type == "refusal") {
      text += fields.text("refusal").value_or("");
      continue;
    }
    if (type != "text" && type != "input_text" && type != "output_text") {
      fields.reject("type", "\"text\": this model reads nothing else");
    }
    if (!fields.text("text")) {
      fields.reject("text", "a string");
    }
    text += *fields.text("text");
  }
  return text;
}

// Templates expect a call's arguments as an object; clients send a string that contains one.
Json parsed_arguments(const json& arguments, const Json& ordered, const std::string& where) {
  if (arguments.is_object()) {
    return ordered;
  }
  if (arguments.is_string()) {
    const auto text = arguments.get<std::string>();
    if (text.empty()) {
      return Json::object();
    }
    try {
      if (const json parsed = parse_json(text, where); parsed.is_object()) {
        return in_order(text, key_comparisons(parsed), where);
      }
    } catch (const Error&) {  // malformed output of a model, maybe, which is asked to repair it
      return text;
    }
  }
  throw ApiError(400, where + " is " + described(arguments) + "; expected a JSON object, as a text",
                 where, "invalid_value");
}

Json tool_calls_of(const json& calls, Json ordered, const std::string& path) {
  const std::string where = path + "tool_calls";
  if (!calls.is_array()) {
    throw ApiError(400, where + " is " + described(calls) + "; expected an array", where,
                   "invalid_value");
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string inner = fmt::format("{}[{}].", where, i);
    if (!calls[i].is_object()) {
      throw ApiError(400, where + " holds " + described(calls[i]) + "; expected objects", where,
                     "invalid_value");
    }
    const Fields call(calls[i], inner);
    (void)call.text("id");  // rejects anything but a text
    const json* function = call.object("function");
    if (function == nullptr) {
      call.reject("function", "an object");
    }
    const Fields named(*function, inner + "function.");
    if (!named.text("name")) {
      named.reject("name", "a string");
    }
    if (const json* arguments = named.find("arguments")) {
      ordered[i]["function"]["arguments"] = parsed_arguments(
          *arguments, ordered[i]["function"]["arguments"], named.name_of("arguments"));
    }
  }
  return ordered;
}

// A message as the template sees it: all of its fields, except null ones and winnow's own.
Json template_message(const Fields& message, const Json& ordered, const std::string& path) {
  const auto role = message.text("role");
  if (!role) {
    message.reject("role", "a string");
  }
  // "developer" is OpenAI's newer name for the templates' "system".
  Json result{{"role", *role == "developer" ? "system" : *role},
              {"content", content_text(message, *role, path)}};
  for (const auto& [name, value] : ordered.items()) {
    const bool is_empty = value.is_null() || (value.is_structured() && value.empty());
    if (is_empty || name == "role" || name == "content" || name == "token_ids") {
      continue;
    }
    if (name == "audio" || name == "function_call") {
      message.reject(name, "none: it is not supported");
    }
    if (name == "name" || name == "tool_call_id" || name == "reasoning_content" ||
        name == "reasoning") {
      (void)message.text(name.c_str());
    }
    if (name == "reasoning" && !ordered.contains("reasoning_content")) {  // vLLM's newer name
      result["reasoning_content"] = value;
    }
    result[name] =
        name == "tool_calls" ? tool_calls_of(*message.find("tool_calls"), value, path) : value;
  }
  // gpt-oss's name. Its template accepts only one of content and thinking together with calls.
  const bool one_alone = result.contains("tool_calls") && result["content"] != "";
  if (result.contains("reasoning_content") && !result.contains("thinking") && !one_alone) {
    result["thinking"] = result["reasoning_content"];
  }
  return result;
}

Conversation parse_messages(const Fields& fields, const Json& ordered) {
  const json* value = fields.find("messages");
  if (value == nullptr || value->empty()) {
    fields.reject("messages", "an array of at least one message");
  }
  Conversation conversation;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string path = fmt::format("messages[{}].", i);
    const Fields message((*value)[i], path);
    conversation.messages.push_back(template_message(message, ordered[i], path));
    if (const json* tokens = message.find("token_ids")) {
      conversation.token_ids.resize(i);
      conversation.token_ids.push_back(token_ids(*tokens, path + "token_ids"));
    }
  }
  return conversation;
}

}  // namespace

std::size_t text_bytes(const Json& value) {
  std::size_t bytes = 0;
  if (value.is_string()) {
    return value.get_ref<const std::string&>().size();
  }
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      bytes += name.size() + text_bytes(inner);
    }
  } else if (value.is_array()) {
    for (const Json& inner : value) {
      bytes += text_bytes(inner);
    }
  }
  return bytes;
}

ChatPrompt parse_chat_prompt(const Fields& fields, const Json& ordered,
                             std::size_t most_variables) {
  ChatPrompt prompt;
  if (const json* variables = fields.object("chat_template_kwargs")) {
    if (variables->size() > most_variables) {
      fields.reject("chat_template_kwargs", fmt::format("at most {} variables", most_variables));
    }
    prompt.variables = ordered.at("chat_template_kwargs");
    for (const auto& [name, value] : variables->items()) {
      prompt.given_variables.push_back(name);
    }
  }
  static const Json kNone;
  prompt.conversation =
      parse_messages(fields, fields.find("messages") == nullptr ? kNone : ordered.at("messages"));
  if (fields.find("documents") != nullptr) {
    prompt.variables["documents"] = ordered.at("documents");
  }
  prompt.tools = parse_tools(fields, ordered);
  prompt.chat_template = fields.text("chat_template");
  prompt.continue_final_message = fields.boolean_or("continue_final_message", false);
  prompt.add_generation_prompt =
      fields.boolean_or("add_generation_prompt", !prompt.continue_final_message);
  if (prompt.continue_final_message && prompt.add_generation_prompt) {
    fields.reject("add_generation_prompt", "false, as the answer goes on with the last message");
  }
  return prompt;
}

}  // namespace winnow::server
