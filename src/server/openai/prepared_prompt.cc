#include "server/openai/prepared_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "server/http/api_error.h"
#include "server/service.h"

namespace winnow::server {
namespace {

struct EncodedPrompt {
  std::string text;
  std::vector<std::int32_t> tokens;
};

// The field that errors name.
std::string_view field_of(const CompletionRequest& completion) {
  return completion.chat ? "messages" : "prompt";
}

std::uint64_t any_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

EncodedPrompt encode(const Service& service, const Prompt& prompt) {
  const Tokenizer& tokenizer = service.tokenizer();
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    service.check_length(text->size(), "prompt");
    return {*text, tokenizer.encode(*text)};
  }
  const auto& tokens = std::get<std::vector<std::int32_t>>(prompt);
  service.check_tokens(tokens, "prompt");
  return {tokenizer.decode(tokens, /*skip_special=*/true), tokens};
}

std::vector<EncodedPrompt> encode_all(const Service& service, const CompletionRequest& completion) {
  if (completion.chat) {
    return {{"", service.chat_prompt(completion.conversation, completion.template_variables)}};
  }
  std::vector<EncodedPrompt> prompts;
  for (const Prompt& prompt : completion.prompts) {
    prompts.push_back(encode(service, prompt));
  }
  return prompts;
}

// Tokens of the answer at most.
int answer_tokens(const CompletionRequest& completion, int prompt, int context) {
  const int wanted = completion.max_tokens.value_or(completion.chat ? context - prompt : 16);
  if (prompt + std::max(wanted, completion.echo ? 0 : 1) > context) {
    throw ApiError(400,
                   fmt::format("the context is {} tokens; the prompt has {} and {} are to follow",
                               context, prompt, std::max(wanted, 1)),
                   std::string(field_of(completion)), "context_length_exceeded");
  }
  return wanted;
}

engine::Request request_of(Service& service, const CompletionRequest& completion,
                           std::vector<std::int32_t> prompt) {
  engine::Request request;
  request.max_tokens =
      answer_tokens(completion, static_cast<int>(prompt.size()), service.context());
  request.prompt = std::move(prompt);
  request.samples = completion.n;
  request.sampling = completion.sampling;
  request.sampling.seed = completion.seed.value_or(any_seed());
  request.logprobs = completion.logprobs;
  request.prompt_logprobs = completion.echo ? completion.logprobs : -1;
  request.trace = completion.trace;
  if (completion.json_object) {
    request.constraint = service.json_constraint();
  }
  if (!completion.ignore_eos || completion.json_object) {
    request.stop_tokens = service.model().eos_tokens;
  }
  try {
    engine::validate(request, service.model());
  } catch (const Error& error) {
    throw ApiError(400, error.what(), std::string(field_of(completion)), "invalid_value");
  }
  return request;
}

}  // namespace

std::vector<PreparedPrompt> prepare_prompts(Service& service, const CompletionRequest& completion) {
  std::vector<PreparedPrompt> prepared;
  for (EncodedPrompt& prompt : encode_all(service, completion)) {
    engine::Request request = request_of(service, completion, std::move(prompt.tokens));
    const std::int32_t first = request.prompt.front();
    prepared.push_back({std::move(prompt.text), first, std::move(request)});
  }
  return prepared;
}

}  // namespace winnow::server
