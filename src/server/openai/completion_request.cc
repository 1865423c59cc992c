#include "server/openai/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/ordered_json.h"
#include "server/openai/prompt_limits.h"

namespace winnow::server {
namespace {

using nlohmann::json;

std::vector<std::string> parse_stops(const Fields& fields, const RequestLimits& limits) {
  const json* value = fields.find("stop");
  if (value == nullptr) {
    return {};
  }
  std::vector<std::string> stops;
  if (value->is_string()) {
    stops.push_back(value->get<std::string>());
  } else if (value->is_array() && value->size() <= static_cast<std::size_t>(limits.most_stops)) {
    stops = fields.texts("stop", static_cast<std::size_t>(limits.most_stops));
  } else {
    fields.reject("stop", fmt::format("a string or at most {} of them", limits.most_stops));
  }
  std::erase(stops, "");  // some clients send one to mean none
  return stops;
}

// completions: the number of alternatives; chat: a flag, and the number in another field.
int parse_logprobs(const Fields& fields, bool chat, const RequestLimits& limits) {
  if (!chat) {
    return static_cast<int>(fields.integer("logprobs", 0, limits.most_logprobs).value_or(-1));
  }
  const int alternatives = fields.integer_or("top_logprobs", 0);
  if (!fields.boolean_or("logprobs", false)) {
    if (alternatives > 0) {
      fields.reject("top_logprobs", "logprobs to be true as well");
    }
    return -1;
  }
  return alternatives;
}

// The field that limits the answer: max_completion_tokens takes precedence.
const char* length_field(const Fields& fields) {
  const bool newer = fields.find("max_completion_tokens") != nullptr;
  return newer ? "max_completion_tokens" : "max_tokens";
}

// nullopt: the rest of the context; clients of llama.cpp and LM Studio write -1 for it.
std::optional<int> parse_max_tokens(const Fields& fields, bool chat, bool may_be_none) {
  constexpr int kDefault = 16;  // for completions, as OpenAI's
  const char* const name = length_field(fields);
  if (fields.find(name) == nullptr) {
    return chat ? std::nullopt : std::optional(kDefault);
  }
  const int most = fields.integer_or(name, -1);
  if (most == 0 && !may_be_none) {
    fields.reject(name, "-1, or an integer from 1 up");
  }
  return most < 0 ? std::nullopt : std::optional(most);
}

void parse_stream(const Fields& fields, CompletionRequest& request) {
  request.stream = fields.boolean_or("stream", false);
  const json* options = fields.object("stream_options");
  if (options == nullptr) {
    return;
  }
  if (!request.stream) {
    fields.reject("stream_options", "none, as stream is not true");
  }
  const Fields inner(*options, "stream_options.");
  request.include_usage = inner.boolean_or("include_usage", false);
  request.continuous_usage =
      request.include_usage && inner.boolean_or("continuous_usage_stats", false);
  if (inner.boolean_or("include_obfuscation", false)) {
    inner.reject("include_obfuscation", "false: it is not supported");
  }
  for (const auto& [name, _] : options->items()) {
    if (name != "include_usage" && name != "continuous_usage_stats" &&
        name != "include_obfuscation") {
      request.ignored.push_back("stream_options." + name);
    }
  }
}

void parse_counts(const Fields& fields, CompletionRequest& request) {
  request.n = fields.integer_or("n", 1);
  request.best_of = fields.integer_or("best_of", request.n);
  if (request.best_of < request.n) {
    fields.reject("best_of", fmt::format("an integer from n ({}) up", request.n));
  }
  if (request.best_of > request.n && request.stream) {
    fields.reject("best_of", "n, as the answer is streamed");
  }
}

// A vote takes one prompt, and its chains are the only samples.
void parse_votes(const Fields& fields, CompletionRequest& request) {
  request.votes = server::parse_votes(fields);
  if (!request.votes) {
    return;
  }
  const auto reject_if = [&](bool asked, const char* what) {
    if (asked) {
      fields.reject("winnow_votes", fmt::format("none beside {}", what));
    }
  };
  reject_if(request.stream, "stream");
  reject_if(request.best_of > 1, "n or best_of");
  reject_if(request.echo, "echo");
  reject_if(request.prompts.size() > 1, "several prompts");
  reject_if(request.prompt.tools.may_call(), "tools");
}

// The prompt and how it is rendered.
void parse_prompt(const Fields& fields, const nlohmann::ordered_json& ordered,
                  const RequestLimits& limits, CompletionRequest& request) {
  if (request.chat) {
    request.prompt =
        parse_chat_prompt(fields, ordered, static_cast<std::size_t>(limits.most_variables));
    request.thoughts = parse_thoughts(fields, request.prompt);
  } else {
    request.suffix = fields.text("suffix");
    if (request.suffix == "") {
      request.suffix.reset();
    }
    request.prompts = parse_prompts(fields, "prompt", limits.most_prompts);
  }
  request.add_special_tokens = fields.boolean("add_special_tokens");
  if (const int tokens = fields.integer_or("truncate_prompt_tokens", 0); tokens != 0) {
    request.truncate_prompt_tokens = tokens;
  } else if (fields.find("truncate_prompt_tokens") != nullptr) {
    fields.reject("truncate_prompt_tokens", "-1, or an integer from 1 up");
  }
  request.echo = fields.boolean_or("echo", false);
  if (request.chat && request.echo && !request.prompt.continue_final_message) {
    fields.reject("echo",
                  "false in a chat whose answer does not go on with a message "
                  "(continue_final_message)");
  }
}

// Whether a schema or a template shows a part of the body, and so needs the order of its keys.
bool needs_order(const Fields& fields, bool chat) {
  return chat || fields.find("response_format") != nullptr ||
         fields.find("structured_outputs") != nullptr || fields.find("guided_json") != nullptr;
}

}  // namespace

std::vector<Prompt> parse_prompts(const Fields& fields, const char* name, int most) {
  const json* value = fields.find(name);
  constexpr std::string_view kExpected =
      "a string, an array of strings, an array of token ids, or an array of such arrays";
  if (value == nullptr) {
    fields.reject(name, kExpected);
  }
  if (value->is_string()) {
    return {value->get<std::string>()};
  }
  if (!value->is_array() || value->empty()) {
    fields.reject(name, kExpected);
  }
  if (value->front().is_number()) {
    return {token_ids(*value, name)};
  }
  if (value->size() > static_cast<std::size_t>(most)) {
    throw ApiError(
        400,
        fmt::format("{} holds {} texts; at most {} are taken at a time", name, value->size(), most),
        name, "too_many_prompts");
  }
  std::vector<Prompt> prompts;
  for (const json& prompt : *value) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else {
      prompts.emplace_back(token_ids(prompt, name));
    }
  }
  return prompts;
}

namespace {

// Token ids of a prompt are counted before they are converted and spelt.
void check_token_counts(const Fields& fields, const RequestLimits& limits) {
  const json* prompt = fields.find("prompt");
  if (limits.context == 0 || prompt == nullptr || !prompt->is_array() || prompt->empty() ||
      fields.find("truncate_prompt_tokens") != nullptr) {
    return;
  }
  const auto check = [&](const json& ids) {
    if (ids.is_array() && ids.size() > static_cast<std::size_t>(limits.context)) {
      const int wanted = parse_max_tokens(fields, /*chat=*/false, /*may_be_none=*/true).value_or(1);
      throw beyond_context(limits.context, ids.size(), wanted, "prompt");
    }
  };
  if (prompt->front().is_number()) {
    check(*prompt);
  } else if (prompt->size() <= static_cast<std::size_t>(limits.most_prompts)) {
    std::ranges::for_each(*prompt, check);
  }
}

// Lists that are too long are refused before the body is read in order, which takes as much memory
// as reading it once.
void check_lists(const CheckedBody& checked, const Fields& fields, bool chat,
                 const RequestLimits& limits) {
  (void)parse_stops(fields, limits);
  if (chat) {
    check_items(checked, limits.context);
  } else {
    check_token_counts(fields, limits);
  }
}

// `ordered`: the same body in its original order, if needs_order().
CompletionRequest read_completion(const Fields& fields, const nlohmann::ordered_json& ordered,
                                  bool chat, const RequestLimits& limits,
                                  std::vector<std::string> ignored) {
  CompletionRequest request;
  request.chat = chat;
  request.prompt_field = chat ? fields.name_of("messages") : "prompt";
  request.length_field = fields.name_of(length_field(fields));
  request.ignored = std::move(ignored);
  request.model = fields.text("model").value_or("");
  parse_prompt(fields, ordered, limits, request);
  request.logprobs = parse_logprobs(fields, chat, limits);
  request.prompt_logprobs = fields.integer_or("prompt_logprobs", -1);
  // A request without an answer returns only the prompt's log-probabilities.
  request.max_tokens =
      parse_max_tokens(fields, chat, !chat && request.echo && request.logprobs >= 0);
  request.sampling = limits.sampling;
  parse_sampling(fields, request.sampling);
  parse_rules(fields, request.rules, request.text_rules);
  if (request.max_tokens && request.rules.min_tokens > *request.max_tokens) {
    fields.reject("min_tokens", fmt::format("at most max_tokens ({})", *request.max_tokens));
  }
  if (request.prompt_logprobs >= 0 && fields.boolean_or("stream", false)) {
    fields.reject("prompt_logprobs", "none in a stream");
  }
  request.seed = fields.bits("seed");
  request.stop = parse_stops(fields, limits);
  request.stop_tokens = fields.tokens("stop_token_ids");
  request.include_stop = fields.boolean_or("include_stop_str_in_output", false);
  parse_stream(fields, request);
  parse_counts(fields, request);
  parse_votes(fields, request);
  request.format = parse_answer_format(fields, ordered);
  request.ignore_eos = fields.boolean_or("ignore_eos", false);
  request.skip_special_tokens = fields.boolean_or("skip_special_tokens", true);
  request.return_token_ids = fields.boolean_or("return_token_ids", false);
  request.priority = fields.integer_or("priority", 0);
  if (fields.find("winnow_draft_tokens") != nullptr) {
    request.draft_tokens = fields.integer_or("winnow_draft_tokens", 0);
  }
  request.trace = fields.boolean_or("winnow_trace", false);
  if (request.trace && (!request.stream || request.n != 1 || request.prompts.size() > 1)) {
    fields.reject("winnow_trace", "a stream of one choice");
  }
  // Votes and traces need single steps, so they exclude drafts.
  if (request.draft_tokens.value_or(0) > 0 && (request.trace || request.votes)) {
    request.ignored.emplace_back("winnow_draft_tokens");
  }
  return request;
}

}  // namespace

ApiError beyond_context(int context, std::size_t prompt, int wanted, const std::string& param) {
  return {400,
          fmt::format("the context is {} tokens; the prompt has {} and {} more are requested",
                      context, prompt, std::max(wanted, 1)),
          param, "context_length_exceeded"};
}

CompletionRequest parse_completion(std::string_view body, bool chat, const RequestLimits& limits) {
  json parsed = parse_body(body);
  const double comparisons = key_comparisons(parsed);
  CheckedBody checked =
      check_fields(std::move(parsed), chat ? Endpoint::chat : Endpoint::completions);
  const Fields fields(checked.value, checked.spelled);
  check_lists(checked, fields, chat, limits);
  const nlohmann::ordered_json ordered =
      needs_order(fields, chat) ? in_order(body, comparisons, {}) : nlohmann::ordered_json();
  return read_completion(fields, ordered, chat, limits, std::move(checked.ignored));
}

CompletionRequest parse_chat(nlohmann::ordered_json chat, const RequestLimits& limits,
                             const std::map<std::string, std::string>& spelled) {
  try {
    CheckedBody checked = check_fields(json(chat), Endpoint::chat);
    check_items(checked, limits.context);
    std::map<std::string, std::string> names = spelled;
    names.merge(checked.spelled);
    const Fields fields(checked.value, names);
    return read_completion(fields, chat, /*chat=*/true, limits, std::move(checked.ignored));
  } catch (const ApiError& error) {
    throw renamed(error, spelled);
  }
}

}  // namespace winnow::server
