// A validated request to /v1/completions or /v1/chat/completions.
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
#include "server/http/api_error.h"
#include "server/openai/answer_format.h"
#include "server/openai/message_fields.h"
#include "server/openai/reasoning/thought_fields.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/vote_fields.h"
#include "server/sampling_defaults.h"

namespace winnow::server {

/// A prompt as text or as token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

/// Field names and meanings: see field_rules.cc.
struct CompletionRequest {
  bool chat = false;
  std::string prompt_field = "prompt";      // the prompt's name in errors
  std::string length_field = "max_tokens";  // the name of max_tokens in errors
  std::string model;                        // "": the served model
  std::vector<Prompt> prompts;              // completions only
  std::optional<std::string> suffix;        // completions only
  ChatPrompt prompt;                        // chat only
  ThoughtRequest thoughts;                  // chat only
  std::optional<bool> add_special_tokens;
  std::optional<int> truncate_prompt_tokens;  // -1: to the context's length
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
  bool include_stop = false;  // the text includes the stop string
  int prompt_logprobs = -1;   // in vLLM's format
  bool echo = false;
  bool stream = false;
  bool include_usage = false;     // in a final piece of the stream
  bool continuous_usage = false;  // in all of its pieces
  bool keep_pieces = false;       // a whole answer also contains a stream's pieces
  AnswerFormat format;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  std::optional<VoteRequest> votes;  // winnow: several chains; the majority answers
  bool trace = false;                // winnow: stream the contents of the cache's heads
  int priority = 0;
  std::optional<int> draft_tokens;
  std::vector<std::string> ignored;  // fields without effect

  /// Samples that the engine generates for each prompt.
  [[nodiscard]] int samples() const { return votes ? votes->chains : best_of; }
};

/// Limits of a request that the table of fields does not have, and defaults of omitted
/// fields.
struct RequestLimits {
  int context = 0;          // tokens of a prompt and its answer; 0: any
  int most_prompts = 256;   // in one request
  int most_logprobs = 20;   // alternatives per token
  int most_stops = 16;      // stop strings
  int most_variables = 64;  // passed to the template
  SamplingOptions sampling = neutral_sampling();
};

/// The error that refuses a prompt of so many tokens with `wanted` more for its answer.
ApiError beyond_context(int context, std::size_t prompt, int wanted, const std::string& param);

/// Reads a text, token ids, or a list of at most `most` of either. Throws ApiError.
std::vector<Prompt> parse_prompts(const Fields& fields, const char* name, int most);

/// Reads a request's body. Throws ApiError with status 400 that names the field at fault.
CompletionRequest parse_completion(std::string_view body, bool chat, const RequestLimits& limits);

/// Reads a chat that another API's request was converted to. `spelled`: that API's names for
/// fields, and parts of them.
CompletionRequest parse_chat(nlohmann::ordered_json chat, const RequestLimits& limits,
                             const std::map<std::string, std::string>& spelled);

}  // namespace winnow::server
