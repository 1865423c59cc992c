#include "server/anthropic/messages_reply.h"

#include <algorithm>
#include <array>

#include "checkpoint/json_text.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

bool is_text(const Json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}

std::string message_id(const Json& completion) {
  return "msg_" + completion.at("id").get<std::string>();
}

Json stop_of(const Json& choice) {
  const std::string finish = choice.at("finish_reason").get<std::string>();
  if (finish == "stop" && choice.contains("stop_reason")) {
    return {{"stop_reason", "stop_sequence"}, {"stop_sequence", choice["stop_reason"]}};
  }
  const std::string_view reason = finish == "length"       ? "max_tokens"
                                  : finish == "tool_calls" ? "tool_use"
                                                           : "end_turn";
  return {{"stop_reason", reason}, {"stop_sequence", nullptr}};
}

// Anthropic does not count tokens found in the cache as input.
Json messages_usage(const Json& usage) {
  const int cached = usage.at("prompt_tokens_details").at("cached_tokens").get<int>();
  return {{"input_tokens", usage.at("prompt_tokens").get<int>() - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", usage.at("completion_tokens")}};
}

// The arguments of a call that max_tokens cut off cannot be parsed: an empty object.
Json input_of(const Json& call) {
  Json input = json_or_discarded<Json>(call.at("function").at("arguments").get<std::string>());
  return input.is_object() ? input : Json::object();
}

Json blocks_of(const Json& message) {
  Json blocks = Json::array();
  if (message.contains("reasoning_content")) {
    blocks.push_back(
        {{"type", "thinking"}, {"thinking", message["reasoning_content"]}, {"signature", ""}});
  }
  const Json& text = message.at("content");
  if (is_text(text)) {
    blocks.push_back({{"type", "text"}, {"text", text}});
  }
  for (const Json& call : message.value("tool_calls", Json::array())) {
    blocks.push_back({{"type", "tool_use"},
                      {"id", call.at("id")},
                      {"name", call.at("function").at("name")},
                      {"input", input_of(call)}});
  }
  return blocks;
}

Json message_of(const Json& completion, Json content, Json stop, Json usage) {
  return {{"id", message_id(completion)},
          {"type", "message"},
          {"role", "assistant"},
          {"model", completion.at("model")},
          {"content", std::move(content)},
          {"stop_reason", stop.is_null() ? Json() : stop["stop_reason"]},
          {"stop_sequence", stop.is_null() ? Json() : stop["stop_sequence"]},
          {"usage", std::move(usage)}};
}

Json error_of(std::string_view type, const Json& error) {
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.at("message")}}}};
}

}  // namespace

Json MessagesReply::whole(const Json& completion) {
  const Json& choice = completion.at("choices").at(0);
  Json message = message_of(completion, blocks_of(choice.at("message")), stop_of(choice),
                            messages_usage(completion.at("usage")));
  message["winnow"] = completion.at("winnow");
  return message;
}

Json MessagesReply::error(int status, const Json& error) {
  static constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "authentication_error"}, {404, "not_found_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},     {500, "api_error"},       {501, "api_error"},
      {503, "overloaded_error"}};
  const auto* const type =
      std::ranges::find(kTypes, status, &std::pair<int, std::string_view>::first);
  return error_of(type == std::end(kTypes) ? "invalid_request_error" : type->second, error);
}

void MessagesReply::tell_error(const Json& error) {
  event("error", error_of("api_error", error));
}

void MessagesReply::tell(const Json& chunk) {
  if (chunk.is_null()) {
    end_message();
    return;
  }
  if (!begun_) {
    begin_message(chunk);
  }
  if (chunk.contains("usage") && !chunk["usage"].is_null()) {
    usage_ = messages_usage(chunk["usage"]);
  }
  for (const Json& choice : chunk.at("choices")) {
    const Json& delta = choice.at("delta");
    if (delta.contains("reasoning_content")) {
      begin_block("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      tell_delta("thinking_delta", {{"thinking", delta["reasoning_content"]}});
    }
    if (delta.contains("content") && is_text(delta["content"])) {
      begin_block("text", {{"type", "text"}, {"text", ""}});
      tell_delta("text_delta", {{"text", delta["content"]}});
    }
    if (delta.contains("tool_calls")) {
      tell_calls(delta["tool_calls"]);
    }
    if (!choice.at("finish_reason").is_null()) {
      stop_ = stop_of(choice);
    }
  }
}

void MessagesReply::begin_message(const Json& chunk) {
  begun_ = true;
  Json usage = messages_usage(chunk.at("usage"));
  event("message_start",
        {{"type", "message_start"},
         {"message", message_of(chunk, Json::array(), nullptr, std::move(usage))}});
}

// Continues the open block if it is of this kind, or begins a new one.
void MessagesReply::begin_block(std::string_view kind, Json block) {
  if (open_ == kind && kind != "tool_use") {
    return;
  }
  end_block();
  open_ = kind;
  event(
      "content_block_start",
      {{"type", "content_block_start"}, {"index", blocks_++}, {"content_block", std::move(block)}});
}

void MessagesReply::end_block() {
  if (!open_.empty()) {
    open_.clear();
    event("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_ - 1}});
  }
}

void MessagesReply::tell_delta(std::string_view kind, const Json& delta) {
  Json typed{{"type", kind}};
  typed.update(delta);
  event("content_block_delta",
        {{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(typed)}});
}

void MessagesReply::tell_calls(const Json& calls) {
  for (const Json& call : calls) {
    const Json& function = call.at("function");
    if (function.contains("name")) {
      begin_block("tool_use", {{"type", "tool_use"},
                               {"id", call.at("id")},
                               {"name", function["name"]},
                               {"input", Json::object()}});
    }
    if (const Json& arguments = function.at("arguments"); is_text(arguments)) {
      tell_delta("input_json_delta", {{"partial_json", arguments}});
    }
  }
}

void MessagesReply::end_message() {
  end_block();
  Json usage = usage_;
  event("message_delta",
        {{"type", "message_delta"}, {"delta", stop_}, {"usage", std::move(usage)}});
  event("message_stop", {{"type", "message_stop"}});
}

}  // namespace winnow::server
