// What a client asks for at /v1/completions and /v1/chat/completions, checked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/openai/json_fields.h"
#include "tokenizer/chat_prompt.h"

namespace winnow::server {

/// A prompt as text or as token ids.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  bool chat = false;
  std::string model;            // "": whatever is served
  std::vector<Prompt> prompts;  // completions only
  Conversation conversation;    // chat only
  nlohmann::ordered_json template_variables = nlohmann::ordered_json::object();  // chat only
  std::optional<int> max_tokens;
  int n = 1;
  SamplingOptions sampling;
  int logprobs = -1;  // alternatives to report per token; -1: no log-probabilities
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool echo = false;  // completions only
  bool stream = false;
  bool include_usage = false;  // in a last piece of the stream
  bool json_object = false;    // the answer is to be a JSON object
  bool ignore_eos = false;
  bool return_token_ids = false;
  bool trace = false;  // winnow: stream what the heads of the cache hold
};

/// How much a request may ask for.
struct RequestLimits {
  int most_samples = 128;   // n
  int most_prompts = 256;   // in one request
  int most_logprobs = 20;   // alternatives per token
  int most_stops = 16;      // stop strings
  int most_variables = 64;  // for the template
};

/// The "messages" of a chat, each with "role", "content" and perhaps "token_ids".
Conversation parse_messages(const Fields& fields);

/// Reads a request's body. Throws ApiError with status 400 that names the field at fault.
CompletionRequest parse_completion(std::string_view body, bool chat, const RequestLimits& limits);

}  // namespace winnow::server
