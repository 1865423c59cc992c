// What a client asks for at /v1/completions and /v1/chat/completions, checked.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/openai/answer_format.h"
#include "server/openai/message_fields.h"
#include "server/openai/reasoning/thought_fields.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/vote_fields.h"
#include "server/sampling_defaults.h"

namespace winnow::server {

/// A prompt as text or as token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

/// A field's name and what it does: see field_rules.cc.
struct CompletionRequest {
  bool chat = false;
  std::string prompt_field = "prompt";  // what errors call the prompt
  std::string model;                    // "": whatever is served
  std::vector<Prompt> prompts;          // completions only
  std::optional<std::string> suffix;    // completions only
  ChatPrompt prompt;                    // chat only
  ThoughtRequest thoughts;              // chat only
  std::optional<bool> add_special_tokens;
  std::optional<int> truncate_prompt_tokens;  // -1: to the context
  std::optional<int> max_tokens;              // none: the rest of the context
  int n = 1;
  int best_of = 1;  // at least n
  SamplingOptions sampling;
  int logprobs = -1;  // alternatives to report per token; -1: no log-probabilities
  engine::LogitRules rules;
  TextRules text_rules;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_tokens;
  bool include_stop = false;  // a stop string stays in the text
  int prompt_logprobs = -1;   // as vLLM tells them
  bool echo = false;
  bool stream = false;
  bool include_usage = false;     // in a last piece of the stream
  bool continuous_usage = false;  // in all of its pieces
  bool keep_pieces = false;       // a whole answer also says what a stream's pieces would
  AnswerFormat format;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  std::optional<VoteRequest> votes;  // winnow: several chains, of which the majority answers
  bool trace = false;                // winnow: stream what the heads of the cache hold
  int priority = 0;
  std::optional<int> draft_tokens;
  std::vector<std::string> ignored;  // fields without effect

  /// Samples that the engine makes for each prompt.
  [[nodiscard]] int samples() const { return votes ? votes->chains : best_of; }
};

/// How much a request may ask for, beyond what the table of fields says, and what holds where it
/// does not ask.
struct RequestLimits {
  int most_prompts = 256;   // in one request
  int most_logprobs = 20;   // alternatives per token
  int most_stops = 16;      // stop strings
  int most_variables = 64;  // for the template
  SamplingOptions sampling = neutral_sampling();
};

/// Reads a text, token ids, or at most `most` of either. Throws ApiError.
std::vector<Prompt> parse_prompts(const Fields& fields, const char* name, int most);

/// Reads a request's body. Throws ApiError with status 400 that names the field at fault.
/// `spelled`: what the client calls fields, and parts of them, that its API knows by other names.
CompletionRequest parse_completion(std::string_view body, bool chat, const RequestLimits& limits,
                                   const std::map<std::string, std::string>& spelled = {});

}  // namespace winnow::server
