#include "server/openai/completion_request.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/http/api_error.h"
#include "server/openai/json_fields.h"
#include "tokenizer/utf8.h"

namespace winnow::server {
namespace {

using nlohmann::json;

std::vector<Prompt> parse_prompts(const Fields& fields, const RequestLimits& limits) {
  const json* value = fields.find("prompt");
  constexpr std::string_view kExpected =
      "a string, an array of strings, an array of token ids, or an array of such arrays";
  if (value == nullptr) {
    fields.reject("prompt", kExpected);
  }
  if (value->is_string()) {
    return {value->get<std::string>()};
  }
  if (!value->is_array() || value->empty()) {
    fields.reject("prompt", kExpected);
  }
  if (value->front().is_number()) {
    return {token_ids(*value, "prompt")};
  }
  if (value->size() > static_cast<std::size_t>(limits.most_prompts)) {
    throw ApiError(400,
                   fmt::format("prompt holds {} prompts; at most {} are taken at a time",
                               value->size(), limits.most_prompts),
                   "prompt", "too_many_prompts");
  }
  std::vector<Prompt> prompts;
  for (const json& prompt : *value) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else {
      prompts.emplace_back(token_ids(prompt, "prompt"));
    }
  }
  return prompts;
}

// A message's content: text, or parts of type text, which are joined. An assistant's may have none,
// and one whose tokens are given.
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
    if (!part.is_object()) {
      message.reject("content", "parts that are objects");
    }
    const Fields fields(part, where);
    if (fields.text("type") != "text") {
      fields.reject("type", "\"text\": this model reads nothing else");
    }
    text += fields.text("text").value_or("");
  }
  return text;
}

std::vector<std::string> parse_stops(const Fields& fields, const RequestLimits& limits) {
  const json* value = fields.find("stop");
  if (value == nullptr) {
    return {};
  }
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= static_cast<std::size_t>(limits.most_stops)) {
    for (const json& stop : *value) {
      if (!stop.is_string()) {
        fields.reject("stop", "strings");
      }
      stops.push_back(stop.get<std::string>());
    }
  } else {
    fields.reject("stop", fmt::format("a string or at most {} of them", limits.most_stops));
  }
  std::erase(stops, "");  // some clients send one where they mean none
  return stops;
}

// completions: the number of alternatives; chat: a flag, and the number beside it.
int parse_logprobs(const Fields& fields, bool chat, const RequestLimits& limits) {
  if (!chat) {
    return static_cast<int>(fields.integer("logprobs", 0, limits.most_logprobs).value_or(-1));
  }
  const auto alternatives = fields.integer("top_logprobs", 0, limits.most_logprobs);
  if (!fields.boolean("logprobs").value_or(false)) {
    if (alternatives) {
      fields.reject("top_logprobs", "logprobs to be true as well");
    }
    return -1;
  }
  return static_cast<int>(alternatives.value_or(0));
}

std::optional<int> parse_max_tokens(const Fields& fields, bool chat, int least) {
  constexpr std::int64_t kMostTokens = 1 << 24;
  auto max_tokens = fields.integer("max_tokens", least, kMostTokens);
  if (chat) {
    const auto newer = fields.integer("max_completion_tokens", least, kMostTokens);
    max_tokens = newer ? newer : max_tokens;
  }
  return max_tokens ? std::optional(static_cast<int>(*max_tokens)) : std::nullopt;
}

void parse_sampling(const Fields& fields, SamplingOptions& sampling) {
  sampling.temperature = fields.number("temperature", 0.0, 100.0).value_or(1.0);
  sampling.top_p = fields.number("top_p", 0.0, 1.0).value_or(1.0);
  if (sampling.top_p == 0.0) {  // the most likely token alone
    sampling.top_p = std::numeric_limits<double>::min();
  }
  constexpr std::int64_t kMostTokens = 1 << 30;
  // -1 is vLLM's word for all.
  sampling.top_k =
      std::max(0, static_cast<int>(fields.integer("top_k", -1, kMostTokens).value_or(0)));
  sampling.min_p = fields.number("min_p", 0.0, 1.0).value_or(0.0);
  sampling.repetition_penalty = fields.number("repetition_penalty", 0.01, 100.0).value_or(1.0);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0).value_or(0.0);
  sampling.presence_penalty = fields.number("presence_penalty", -2.0, 2.0).value_or(0.0);
}

bool parse_response_format(const Fields& fields) {
  const json* format = fields.object("response_format");
  if (format == nullptr) {
    return false;
  }
  const Fields inner(*format, "response_format.");
  const auto type = inner.text("type");
  if (type != "text" && type != "json_object") {
    inner.reject("type", "\"text\" or \"json_object\"");
  }
  return type == "json_object";
}

// What would change the answer and is not done is refused, not ignored.
void refuse_unsupported(const Fields& fields, int n) {
  const auto is_empty = [](const json& value) {
    return value.empty() || value == "";  // NOLINT(readability-container-size-empty): a text is not
  };
  const auto is_false = [](const json& value) { return value == false; };
  fields.refuse_unless("logit_bias", is_empty, "is not supported");
  fields.refuse_unless("suffix", is_empty, "is not supported");
  fields.refuse_unless("tools", is_empty, "tools are not supported");
  fields.refuse_unless("functions", is_empty, "functions are not supported");
  fields.refuse_unless("audio", is_empty, "is not supported");
  fields.refuse_unless("use_beam_search", is_false, "is not supported");
  fields.refuse_unless(
      "best_of", [n](const json& value) { return value.is_number() && value == n; },
      "is supported only where it equals n");
}

}  // namespace

Conversation parse_messages(const Fields& fields) {
  const json* value = fields.find("messages");
  if (value == nullptr || !value->is_array() || value->empty()) {
    fields.reject("messages", "an array of at least one message");
  }
  Conversation conversation;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string path = fmt::format("messages[{}].", i);
    if (!(*value)[i].is_object()) {
      fields.reject("messages", "messages that are objects");
    }
    const Fields message((*value)[i], path);
    const auto role = message.text("role");
    if (!role) {
      message.reject("role", "a string");
    }
    // OpenAI's newer name for what templates call system.
    conversation.messages.push_back({{"role", *role == "developer" ? "system" : *role},
                                     {"content", content_text(message, *role, path)}});
    if (const json* tokens = message.find("token_ids")) {
      conversation.token_ids.resize(i);
      conversation.token_ids.push_back(token_ids(*tokens, path + "token_ids"));
    }
  }
  return conversation;
}

CompletionRequest parse_completion(std::string_view body, bool chat, const RequestLimits& limits) {
  const json value = parse_body(body);
  const Fields fields(value);
  CompletionRequest request;
  request.chat = chat;
  request.model = fields.text("model").value_or("");
  if (chat) {
    request.conversation = parse_messages(fields);
    if (const json* variables = fields.object("chat_template_kwargs")) {
      if (variables->size() > static_cast<std::size_t>(limits.most_variables)) {
        fields.reject("chat_template_kwargs",
                      fmt::format("at most {} variables", limits.most_variables));
      }
      request.template_variables = *variables;
    }
  } else {
    request.prompts = parse_prompts(fields, limits);
  }
  request.echo = !chat && fields.boolean("echo").value_or(false);
  request.logprobs = parse_logprobs(fields, chat, limits);
  // Of a prompt alone only its log-probabilities are news.
  request.max_tokens =
      parse_max_tokens(fields, chat, request.echo && request.logprobs >= 0 ? 0 : 1);
  request.n = static_cast<int>(fields.integer("n", 1, limits.most_samples).value_or(1));
  parse_sampling(fields, request.sampling);
  request.seed = fields.bits("seed");
  request.stop = parse_stops(fields, limits);
  request.stream = fields.boolean("stream").value_or(false);
  if (const json* options = fields.object("stream_options")) {
    const Fields inner(*options, "stream_options.");
    request.include_usage = inner.boolean("include_usage").value_or(false);
  }
  request.json_object = parse_response_format(fields);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  request.trace = fields.boolean("winnow_trace").value_or(false);
  if (request.trace && (!request.stream || request.n != 1 || request.prompts.size() > 1)) {
    fields.reject("winnow_trace", "a stream of one choice");
  }
  refuse_unsupported(fields, request.n);
  return request;
}

}  // namespace winnow::server
