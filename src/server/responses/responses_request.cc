#include "server/responses/responses_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/ordered_json.h"
#include "server/openai/prompt_limits.h"
#include "server/responses/input_items.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

// Converts tools: flat here, nested in chats.
Json responses_tools(const Json& given) {
  Json tools = Json::array();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    const std::string type = given[i].value("type", "");
    if (type != "function") {
      throw ApiError(400,
                     fmt::format("{}.type: \"{}\" is not supported: this server runs no tools of "
                                 "its own, functions alone are called",
                                 path, type),
                     path + ".type", "unsupported_value");
    }
    Json function = given[i];
    function.erase("type");
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

Json choice_of(const Json& given) {
  if (given.is_object() && given.value("type", "") == "function") {
    return {{"type", "function"}, {"function", {{"name", given.value("name", Json())}}}};
  }
  if (given.is_object() && given.value("type", "") == "allowed_tools") {
    Json allowed{{"mode", given.value("mode", Json())}, {"tools", given.value("tools", Json())}};
    for (Json& tool : allowed["tools"]) {
      tool = choice_of(tool);
    }
    return {{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
  }
  return given;
}

void add_text(const Json& text, Json& chat, std::vector<std::string>& ignored) {
  for (const auto& [name, value] : text.items()) {
    if (name == "format" && !value.is_null()) {
      chat["response_format"] = value;  // flat, as llama.cpp's
    } else if (name != "format" && !value.is_null()) {
      ignored.push_back("text." + name);
    }
  }
}

void add_reasoning(const Json& reasoning, Json& chat, std::vector<std::string>& ignored) {
  for (const auto& [name, value] : reasoning.items()) {
    if (name == "effort" && !value.is_null()) {
      chat["reasoning_effort"] = value;
    } else if (name != "effort" && !value.is_null()) {
      ignored.push_back("reasoning." + name);
    }
  }
}

// All values of OpenAI's `include`, most of them for OpenAI's own tools.
constexpr std::array<std::string_view, 8> kIncludable{"file_search_call.results",
                                                      "web_search_call.results",
                                                      "web_search_call.action.sources",
                                                      "message.input_image.image_url",
                                                      "computer_call_output.output.image_url",
                                                      "code_interpreter_call.outputs",
                                                      "reasoning.encrypted_content",
                                                      "message.output_text.logprobs"};

void add_include(const Json& include, Json& chat, std::vector<std::string>& ignored) {
  for (std::size_t i = 0; i < include.size(); ++i) {
    const auto what = include[i].get<std::string>();
    if (std::ranges::find(kIncludable, what) == kIncludable.end()) {
      throw ApiError(
          400,
          fmt::format("include[{}] is \"{}\"; it takes {}", i, what, fmt::join(kIncludable, ", ")),
          fmt::format("include[{}]", i), "invalid_value");
    }
    if (what == kIncludable.back()) {
      chat["logprobs"] = true;
    } else {
      ignored.push_back("include." + what);
    }
  }
}

// The request settings that an answer repeats.
Json told_back_of(const Json& body, const SamplingOptions& sampling) {
  Json told = Json::object();
  static constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"parallel_tool_calls", "true"},
      {"previous_response_id", "null"},
      {"reasoning", "{}"},
      {"store", "true"},
      {"text", R"({"format": {"type": "text"}})"},
      {"tool_choice", "\"auto\""},
      {"tools", "[]"},
      {"metadata", "{}"}};
  const auto tell = [&](const char* name, const Json& otherwise) {
    const bool given = body.contains(name) && !body[name].is_null();
    told[name] = given ? body[name] : otherwise;
  };
  for (const auto& [name, otherwise] : kDefaults) {
    tell(name, json_from<Json>(otherwise));
  }
  tell("temperature", sampling.temperature);
  tell("top_p", sampling.top_p);
  told["truncation"] = "disabled";
  return told;
}

// The messages of earlier requests.
Json earlier_messages(const Fields& fields, ResponseStore& store) {
  const auto id = fields.text("previous_response_id");
  if (!id) {
    return Json::array();
  }
  const auto earlier = store.find(*id);
  if (!earlier) {
    throw ApiError(404, fmt::format("there is no response {} here", *id), "previous_response_id",
                   "previous_response_not_found");
  }
  return earlier->messages;
}

}  // namespace

ResponsesRequest parse_responses_request(std::string_view text, ResponseStore& store,
                                         const RequestLimits& limits) {
  json parsed = parse_body(text);
  const double comparisons = key_comparisons(parsed);
  CheckedBody checked = check_fields(std::move(parsed), Endpoint::responses);
  check_items(checked, limits.context);
  const Fields fields(checked.value, checked.spelled);
  const Json body = in_order(text, comparisons, {});
  const auto given = [&](const char* name) { return checked.value.contains(name); };
  ResponsesRequest request;
  request.store = fields.boolean_or("store", true);
  request.told_back = told_back_of(body, limits.sampling);
  request.messages = earlier_messages(fields, store);
  request.input = input_items(given("input") ? body["input"] : Json());
  add_messages(request.input, request.messages);
  Json chat{{"messages", request.messages}};
  if (const auto instructions = fields.text("instructions")) {
    Json& messages = chat["messages"];
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *instructions}});
  }
  static constexpr std::pair<const char*, const char*> kSame[] = {
      {"model", "model"},
      {"max_output_tokens", "max_completion_tokens"},
      {"temperature", "temperature"},
      {"top_p", "top_p"},
      {"top_k", "top_k"},
      {"seed", "seed"},
      {"stream", "stream"},
      {"parallel_tool_calls", "parallel_tool_calls"}};
  for (const auto& [from, to] : kSame) {
    if (given(from)) {
      chat[to] = body[from];
    }
  }
  if (given("tools")) {
    chat["tools"] = responses_tools(body["tools"]);
  }
  if (given("tool_choice")) {
    chat["tool_choice"] = choice_of(body["tool_choice"]);
  }
  if (given("text")) {
    add_text(body["text"], chat, checked.ignored);
  }
  if (given("reasoning")) {
    add_reasoning(body["reasoning"], chat, checked.ignored);
  }
  if (given("include")) {
    add_include(body["include"], chat, checked.ignored);
  }
  take_chat_fields(body, Endpoint::responses, checked.ignored, chat);
  if (const int most = fields.integer_or("top_logprobs", 0); most > 0) {
    chat["logprobs"] = true;
    chat["top_logprobs"] = most;
  }
  if (fields.boolean_or("stream", false)) {
    chat["stream_options"] = {{"include_usage", true}};
  }
  std::map<std::string, std::string> names{{"max_completion_tokens", "max_output_tokens"},
                                           {"messages", "input"},
                                           {"response_format", "text.format"},
                                           {"reasoning_effort", "reasoning.effort"},
                                           {"tool_choice.function", "tool_choice"},
                                           {"tool_choice.allowed_tools", "tool_choice"}};
  for (std::size_t i = 0; given("tools") && i < body["tools"].size(); ++i) {
    names[fmt::format("tools[{}].function", i)] = fmt::format("tools[{}]", i);
  }
  const json choice = checked.value.value("tool_choice", json());
  const json allowed = choice.is_object() ? choice.value("tools", json()) : json();
  for (std::size_t i = 0; allowed.is_array() && i < allowed.size(); ++i) {
    names[fmt::format("tool_choice.allowed_tools.tools[{}].function", i)] =
        fmt::format("tool_choice.tools[{}]", i);
  }
  request.completion = parse_chat(std::move(chat), limits, names);
  request.completion.keep_pieces = true;
  request.completion.thoughts.lenient = true;  // clients ask any model to reason
  std::vector<std::string>& ignored = request.completion.ignored;
  ignored.insert(ignored.end(), checked.ignored.begin(), checked.ignored.end());
  return request;
}

}  // namespace winnow::server
