#include "server/openai/prepared_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "server/http/api_error.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/reasoning/thought_constraint.h"
#include "server/service.h"

namespace winnow::server {
namespace {

struct EncodedPrompt {
  std::string text;
  std::vector<std::int32_t> tokens;
};

std::uint64_t any_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

EncodedPrompt encode(const Service& service, const CompletionRequest& completion,
                     const Prompt& prompt) {
  const PromptTokens& prompts = service.prompts();
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    if (completion.suffix) {
      return {*text, prompts.infill(*text, *completion.suffix)};
    }
    return {*text, prompts.text(*text, completion.add_special_tokens.value_or(true), "prompt")};
  }
  const auto& tokens = std::get<std::vector<std::int32_t>>(prompt);
  prompts.check_tokens(tokens, "prompt");
  if (completion.suffix) {
    throw ApiError(400, "suffix goes with prompts that are texts", "suffix", "invalid_value");
  }
  return {service.tokenizer().decode(tokens, /*skip_special=*/true), tokens};
}

std::vector<EncodedPrompt> encode_all(const Service& service, const CompletionRequest& completion) {
  if (completion.chat) {
    std::string text;
    if (completion.echo) {
      text = completion.prompt.conversation.messages.back().at("content").get<std::string>();
    }
    return {{std::move(text),
             service.prompts().chat(completion.prompt, completion.add_special_tokens == true)}};
  }
  std::vector<EncodedPrompt> prompts;
  for (const Prompt& prompt : completion.prompts) {
    prompts.push_back(encode(service, completion, prompt));
  }
  return prompts;
}

// Keeps only the last tokens of a prompt, if requested.
void truncate(const CompletionRequest& completion, int context, const Tokenizer& tokenizer,
              EncodedPrompt& prompt) {
  if (!completion.truncate_prompt_tokens) {
    return;
  }
  const int answer = completion.max_tokens.value_or(1);
  const int most = *completion.truncate_prompt_tokens > 0 ? *completion.truncate_prompt_tokens
                                                          : std::max(1, context - answer);
  const int excess = static_cast<int>(prompt.tokens.size()) - most;
  if (excess > 0) {
    prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + excess);
    if (!completion.chat) {
      prompt.text = tokenizer.decode(prompt.tokens, /*skip_special=*/true);
    }
  }
}

// The maximum number of tokens of the answer.
int answer_tokens(const CompletionRequest& completion, int prompt, int context) {
  const int wanted = completion.max_tokens.value_or(context - prompt);
  if (prompt + std::max(wanted, completion.echo ? 0 : 1) > context) {
    throw beyond_context(context, static_cast<std::size_t>(prompt), wanted,
                         prompt < context ? completion.length_field : completion.prompt_field);
  }
  return wanted;
}

// The token sequences that spell a word: at the beginning of a text, and after a space.
void add_spellings(const std::string& word, const Tokenizer& tokenizer,
                   std::vector<std::vector<std::int32_t>>& spellings) {
  for (const std::string& text : {word, " " + word}) {
    auto tokens = tokenizer.encode(text, {.add_special = false, .parse_special = false});
    if (!tokens.empty() && std::ranges::find(spellings, tokens) == spellings.end()) {
      spellings.push_back(std::move(tokens));
    }
  }
}

// The tokens that contain one of the texts, in order.
std::vector<std::int32_t> tokens_with(const std::vector<std::string>& texts,
                                      const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t id = 0; !texts.empty() && id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.has_token(id)) {
      continue;
    }
    const std::string bytes = tokenizer.token_bytes(id, /*skip_special=*/false);
    if (std::ranges::any_of(
            texts, [&](const std::string& t) { return bytes.find(t) != std::string::npos; })) {
      tokens.push_back(id);
    }
  }
  return tokens;
}

engine::LogitRules rules_of(const Service& service, const CompletionRequest& completion) {
  const Tokenizer& tokenizer = service.tokenizer();
  engine::LogitRules rules = completion.rules;
  for (const auto& bias : rules.bias) {
    service.prompts().check_tokens(std::span(&bias.token, 1), "logit_bias");
  }
  service.prompts().check_tokens(rules.allowed, "allowed_token_ids");
  for (const auto& [text, bias] : completion.text_rules.bias) {
    for (const std::int32_t token :
         tokenizer.encode(text, {.add_special = false, .parse_special = true})) {
      rules.bias.push_back({token, bias});
    }
  }
  for (const std::string& word : completion.text_rules.bad_words) {
    add_spellings(word, tokenizer, rules.bad_words);
  }
  rules.dry.breakers = tokens_with(completion.text_rules.dry_breakers, tokenizer);
  return rules;
}

// How a chat's answer begins.
ThoughtStart thought_start_of(const Service& service, const CompletionRequest& completion,
                              std::span<const std::int32_t> prompt) {
  if (!completion.chat || service.thought_format() == nullptr) {
    return ThoughtStart::free;
  }
  constexpr std::size_t kTail = 32;  // tokens: enough for a mark and white space
  const auto tail = prompt.last(std::min(prompt.size(), kTail));
  return thought_start(*service.thought_format(),
                       service.tokenizer().decode(tail, /*skip_special=*/false));
}

// The constraint that enforces the requested format; null: any text is allowed.
std::shared_ptr<const engine::TokenConstraint> constraint_of(Service& service,
                                                             const CompletionRequest& completion,
                                                             ThoughtStart start) {
  const ThoughtFormat* thoughts = completion.chat ? service.thought_format() : nullptr;
  const bool in_channel =
      thoughts != nullptr && thoughts->has_channels() && start == ThoughtStart::free;
  auto constraint = service.constraint(completion.format, in_channel ? thoughts->answer : "");
  if (constraint && completion.prompt.tools.must_call()) {
    throw ApiError(
        400,
        fmt::format("tool_choice asks for calls, {} for another form", completion.format.field),
        "tool_choice", "invalid_value");
  }
  if (!constraint) {
    constraint = service.tool_constraint(completion.prompt.tools);
  }
  if (completion.thoughts.budget && service.thought_format() == nullptr) {
    throw ApiError(400,
                   "thinking_token_budget: this model is not known to think (--reasoning-format)",
                   "thinking_token_budget", "unsupported_parameter");
  }
  if (thoughts == nullptr || !(constraint || completion.thoughts.budget)) {
    return constraint;
  }
  return std::make_shared<const ThoughtConstraint>(
      ThoughtConstraint::Rules{.format = *thoughts,
                               .budget = completion.thoughts.budget,
                               .end_tokens = service.model().eos_tokens,
                               .answer = std::move(constraint)},
      service.tokenizer(), start);
}

engine::Request request_of(Service& service, const CompletionRequest& completion,
                           std::vector<std::int32_t> prompt, ThoughtStart start) {
  engine::Request request;
  request.max_tokens =
      answer_tokens(completion, static_cast<int>(prompt.size()), service.context());
  request.prompt = std::move(prompt);
  request.samples = completion.samples();
  request.sampling = completion.sampling;
  request.logprobs = completion.logprobs;
  if (completion.best_of > completion.n) {
    request.logprobs = std::max(request.logprobs, 0);
  }
  request.sampling.seed = completion.seed.value_or(any_seed());
  request.rules = rules_of(service, completion);
  request.prompt_logprobs = completion.prompt_logprobs;
  if (completion.echo && !completion.chat) {
    request.prompt_logprobs = std::max(request.prompt_logprobs, completion.logprobs);
  }
  request.priority = completion.priority;
  request.draft_tokens = completion.draft_tokens;
  request.trace = completion.trace;
  request.adapter = service.adapter(completion.model);
  request.count_reads = completion.votes.has_value();
  request.constraint = constraint_of(service, completion, start);
  request.on_admitted = [&queue = service.metrics().queue,
                         submitted = std::chrono::steady_clock::now()] {
    queue.observe_since(submitted);
  };
  if (!completion.ignore_eos || request.constraint) {
    request.stop_tokens = service.model().eos_tokens;
  }
  service.prompts().check_tokens(completion.stop_tokens, "stop_token_ids");
  std::ranges::copy(completion.stop_tokens, std::back_inserter(request.stop_tokens));
  try {
    engine::validate(request, service.model());
  } catch (const Error& error) {
    throw ApiError(400, error.what(), completion.prompt_field, "invalid_value");
  }
  return request;
}

}  // namespace

std::vector<PreparedPrompt> prepare_prompts(Service& service, const CompletionRequest& completion) {
  std::vector<PreparedPrompt> prepared;
  for (EncodedPrompt& prompt : encode_all(service, completion)) {
    truncate(completion, service.context(), service.tokenizer(), prompt);
    const ThoughtStart start = thought_start_of(service, completion, prompt.tokens);
    engine::Request request = request_of(service, completion, std::move(prompt.tokens), start);
    const std::int32_t first = request.prompt.front();
    prepared.push_back({std::move(prompt.text), first, std::move(request), start});
  }
  return prepared;
}

}  // namespace winnow::server
