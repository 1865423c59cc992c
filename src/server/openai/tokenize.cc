#include "server/openai/tokenize.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/message_fields.h"
#include "server/openai/ordered_json.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/reasoning/thought_fields.h"
#include "server/service.h"
#include "tokenizer/stream_decoder.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// What each token adds to the text: together they are all of it. A character that several tokens
// make up comes with the last of them.
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

HttpResponse json_answer(const Json& value, const std::vector<std::string>& ignored) {
  HttpResponse response{.headers = {}, .body = dump(value)};
  add_ignored(ignored, response);
  return response;
}

}  // namespace

HttpResponse tokenize(const Service& service, std::string_view body) {
  const nlohmann::json parsed = parse_body(body);
  const CheckedBody checked = check_fields(parsed, Endpoint::tokenize);
  const Fields fields(checked.value, checked.spelled);
  service.check_model(fields.text("model").value_or(""));
  std::vector<std::int32_t> tokens;
  if (fields.find("messages") != nullptr) {
    if (fields.find("prompt") != nullptr) {
      fields.reject("prompt", "none beside messages");
    }
    ChatPrompt prompt =
        parse_chat_prompt(fields, in_order(body, parsed, {}),
                          static_cast<std::size_t>(service.config().limits.most_variables));
    (void)parse_thoughts(fields, prompt);
    tokens = service.prompts().chat(prompt, fields.boolean_or("add_special_tokens", false));
  } else {
    const auto text = fields.text("prompt");
    if (!text) {
      fields.reject("prompt", "a string");
    }
    tokens = service.prompts().text(*text, fields.boolean_or("add_special_tokens", true), "prompt");
  }
  Json answer{{"count", tokens.size()}, {"max_model_len", service.context()}, {"tokens", tokens}};
  if (fields.boolean_or("return_token_strs", false)) {
    answer["token_strs"] = texts_of(tokens, service.tokenizer());
  }
  return json_answer(answer, checked.ignored);
}

HttpResponse detokenize(const Service& service, std::string_view body) {
  const CheckedBody checked = check_fields(parse_body(body), Endpoint::detokenize);
  const Fields fields(checked.value, checked.spelled);
  service.check_model(fields.text("model").value_or(""));
  if (fields.find("tokens") == nullptr) {
    fields.reject("tokens", "an array of token ids");
  }
  const std::vector<std::int32_t> ids = fields.tokens("tokens");
  service.prompts().check_tokens(ids, "tokens");
  return json_answer({{"prompt", service.tokenizer().decode(ids, false)}}, checked.ignored);
}

}  // namespace winnow::server
