#include "server/openai/tokenize.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/http/api_error.h"
#include "server/openai/completion_request.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/message_fields.h"
#include "server/openai/ordered_json.h"
#include "server/openai/prompt_limits.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/reasoning/thought_fields.h"
#include "server/service.h"
#include "tokenizer/stream_decoder.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// The text that each token adds: together they are the whole text. A character made of several
// tokens belongs to the last of them.
std::vector<std::string> texts_of(std::span<const std::int32_t> tokens,
                                  const Tokenizer& tokenizer) {
  StreamDecoder decoder(tokenizer, /*skip_special=*/false);
  std::vector<std::string> texts;
  for (const std::int32_t token : tokens) {
    texts.push_back(decoder.push(token));
  }
  if (!texts.empty()) {
    texts.back() += decoder.finish();
  }
  return texts;
}

// Adds the names of ignored fields.
HttpResponse token_answer(const Service& service, const HttpRequest& request, const Json& value,
                          const std::vector<std::string>& ignored) {
  HttpResponse response{.headers = {}, .body = dump(value)};
  add_ignored(ignored, response);
  service.note_ignored(request.id, ignored);
  return response;
}

// Adds variables that the template does not use to `ignored`, as for chats.
ChatPrompt chat_prompt(const Service& service, const Fields& fields,
                       const nlohmann::ordered_json& ordered, std::vector<std::string>& ignored) {
  CompletionRequest request;
  request.prompt = parse_chat_prompt(
      fields, ordered, static_cast<std::size_t>(service.config().limits.most_variables));
  request.thoughts = parse_thoughts(fields, request.prompt);
  service.check_template_fields(request);
  std::ranges::move(request.ignored, std::back_inserter(ignored));
  return std::move(request.prompt);
}

// Fields that only chats use.
std::vector<std::string_view> fields_of_chats() {
  constexpr auto kChats = static_cast<EndpointSet>(Endpoint::chat);
  constexpr auto kTexts = static_cast<EndpointSet>(Endpoint::completions);
  std::vector<std::string_view> names;
  for (const FieldRule& rule : field_rules()) {
    if ((rule.endpoints & (kChats | kTexts)) == kChats) {
      names.push_back(rule.name);
    }
  }
  return names;
}

void ignore(const std::vector<std::string_view>& names, CheckedBody& checked) {
  for (const std::string_view name : names) {
    if (checked.value.contains(name)) {
      checked.ignored.emplace_back(name);
    }
  }
}

}  // namespace

HttpResponse tokenize(const Service& service, const HttpRequest& request) {
  nlohmann::json parsed = parse_body(request.body);
  const double comparisons = key_comparisons(parsed);
  CheckedBody checked = check_fields(std::move(parsed), Endpoint::tokenize);
  check_items(checked, service.context());
  const Fields fields(checked.value, checked.spelled);
  service.check_model(fields.text("model").value_or(""));
  std::vector<std::int32_t> tokens;
  if (fields.find("messages") != nullptr) {
    if (fields.find("prompt") != nullptr) {
      fields.reject("prompt", "none beside messages");
    }
    tokens = service.prompts().chat(
        chat_prompt(service, fields, in_order(request.body, comparisons, {}), checked.ignored),
        fields.boolean_or("add_special_tokens", false));
  } else {
    const auto text = fields.text("prompt");
    if (!text) {
      fields.reject("prompt", "a string");
    }
    tokens = service.prompts().text(*text, fields.boolean_or("add_special_tokens", true), "prompt");
    ignore(fields_of_chats(), checked);
  }
  Json told{{"count", tokens.size()}, {"max_model_len", service.context()}, {"tokens", tokens}};
  if (fields.boolean_or("return_token_strs", false)) {
    told["token_strs"] = texts_of(tokens, service.tokenizer());
  }
  return token_answer(service, request, told, checked.ignored);
}

HttpResponse apply_template(const Service& service, const HttpRequest& request) {
  nlohmann::json parsed = parse_body(request.body);
  const double comparisons = key_comparisons(parsed);
  CheckedBody checked = check_fields(std::move(parsed), Endpoint::tokenize);
  check_items(checked, service.context());
  const Fields fields(checked.value, checked.spelled);
  service.check_model(fields.text("model").value_or(""));
  const std::string text = service.prompts().chat_text(
      chat_prompt(service, fields, in_order(request.body, comparisons, {}), checked.ignored));
  ignore({"prompt", "add_special_tokens", "return_token_strs"}, checked);
  return token_answer(service, request, {{"prompt", text}}, checked.ignored);
}

HttpResponse detokenize(const Service& service, const HttpRequest& request) {
  const CheckedBody checked = check_fields(parse_body(request.body), Endpoint::detokenize);
  const Fields fields(checked.value, checked.spelled);
  service.check_model(fields.text("model").value_or(""));
  if (fields.find("tokens") == nullptr) {
    fields.reject("tokens", "an array of token ids");
  }
  const std::vector<std::int32_t> ids = fields.tokens("tokens");
  service.prompts().check_tokens(ids, "tokens");
  return token_answer(service, request, {{"prompt", service.tokenizer().decode(ids, false)}},
                      checked.ignored);
}

}  // namespace winnow::server
