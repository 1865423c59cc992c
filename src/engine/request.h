// Requests to the engine, and its answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/logit_rules.h"
#include "engine/token_constraint.h"
#include "kvcache/saved_sequence.h"
#include "model/config.h"
#include "winnow/sampling.h"

namespace winnow::model {
class Lora;
}

namespace winnow::engine {

/// Whether sampling depends on how often a token occurs in the answer.
inline bool counts_tokens(const SamplingOptions& options) {
  return options.frequency_penalty != 0.0 || options.presence_penalty != 0.0;
}

/// Throws Error naming the option that is out of range.
void validate(const SamplingOptions& options);

/// Receives a row of logits [vocab]: what the model predicts after the token at `position`.
using OnLogits = std::function<void(int position, std::span<const float> logits)>;

/// Receives the state [hidden] of a prompt's last token after the final norm.
using OnState = std::function<void(std::span<const float> state)>;

/// Receives the cache of a prompt without its last token, whose logits every answer needs. It can
/// serve as Request::beginning.
using OnPromptCache = std::function<void(kvcache::SavedSequence cache)>;

/// Called when a request leaves the queue, because its first sample gets a cache.
using OnAdmitted = std::function<void()>;

struct Request {
  std::vector<std::int32_t> prompt;
  int max_tokens = 16;
  int samples = 1;  // continuations of the one prompt, sharing its pages
  SamplingOptions sampling;
  LogitRules rules = {};
  int logprobs = -1;  // alternatives to report per token; -1: no log-probabilities
  std::vector<std::int32_t> stop_tokens;  // end a sample; reported, not continued
  // Results about the prompt itself. With any of these, max_tokens may be 0.
  int prompt_logprobs = -1;            // alternatives to report per token of the prompt; -1: none
  OnLogits on_logits = {};             // called within step()
  OnState on_state = {};               // called within step()
  OnPromptCache on_prompt_cache = {};  // called once within step(), if there is room for the prompt
  OnAdmitted on_admitted = {};         // called once within step()
  int priority = 0;                    // smaller numbers are admitted first and preempted last
  bool trace = false;                  // report what every token's query sees (CacheTrace)
  bool count_reads = false;            // CacheUsage::reads is wanted
  std::shared_ptr<const model::Lora> adapter = {};
  std::shared_ptr<const TokenConstraint> constraint = {};  // copied for each sample; may be null
  /// The saved cache of a prefix of the prompt. It must be shorter than the prompt, and valid for
  /// the engine's cache and this request's limits.
  std::shared_ptr<const kvcache::SavedSequence> beginning = {};
  std::optional<int> draft_tokens = {};  // instead of EngineConfig::draft_tokens
};

/// Throws Error when a model of this kind can never serve the request (empty prompt, unknown token,
/// longer than the model's positions, bad sampling options).
void validate(const Request& request, const model::ModelSpec& model);

using RequestId = std::uint64_t;

enum class FinishReason : std::uint8_t {
  none,
  stop,
  length,
  cancelled,
  out_of_memory,
  not_numbers,
  no_token
};
std::string_view finish_name(FinishReason reason);
/// The message for a request that ended as not_numbers.
inline constexpr std::string_view kNotNumbers =
    "the model's logits are not numbers: its weights are damaged, or too large for --dtype";

/// The message for a request that ended as no_token.
inline constexpr std::string_view kNoTokenLeft =
    "what is asked of the answer (grammar, allowed or forbidden tokens) leaves no token to go on "
    "with";

/// One new token of a sample, or a token of the prompt whose log-probability was requested.
struct TokenEvent {
  RequestId request = 0;
  int sample = 0;
  std::int32_t token = -1;                 // -1: no token, only the end (cancelled, failed)
  float logprob = 0.0F;                    // if requested
  int rank = 0;                            // among all tokens, if requested; 1: the most likely
  std::vector<TokenLogprob> alternatives;  // most likely first
  FinishReason finish = FinishReason::none;
  bool of_prompt = false;
};

/// The number of entries that the queries of some tokens saw. A sample's traces come in the order
/// of its tokens, without gaps.
struct CacheTrace {
  RequestId request = 0;
  int sample = 0;
  int position = 0;                   // of the first token
  std::vector<std::int32_t> visible;  // [tokens, layers * kv_heads]
};

/// Entries that a sample's queries read and that its cache held, summed over layers and KV heads.
/// They depend on the sample alone, not on the rest of the batch.
struct CacheReads {
  /// Entries that the prompt's queries saw; 0 for all but the first sample of a request.
  std::int64_t prompt = 0;
  /// Entries that the queries of generated tokens saw, one step per token.
  std::int64_t generated = 0;
  /// Entries held after the prompt, and after each step since.
  std::vector<std::int64_t> live;
};

/// What a sample's cache held when it finished.
struct CacheUsage {
  int tokens = 0;                      // that the cache has taken
  std::int64_t live_entries = 0;       // summed over layers and heads
  std::int64_t dense_entries = 0;      // entries of a dense cache after the same tokens
  std::size_t bytes = 0;               // pages, tables and the state of recurrent layers
  std::size_t state_bytes = 0;         // the state of recurrent layers alone
  std::size_t dense_bytes = 0;         // bytes of a dense cache in this storage format
  std::vector<std::int32_t> per_head;  // live entries [layers, kv_heads]
  int reused_tokens = 0;               // of a prefix that was already in the cache
  int drafted_tokens = 0;              // drafted for its answer
  int accepted_tokens = 0;             // part of drafted_tokens
  CacheReads reads;                    // if Request::count_reads

  /// Dense entries over stored ones.
  [[nodiscard]] double compression_ratio() const {
    return live_entries > 0 ? static_cast<double>(dense_entries) / static_cast<double>(live_entries)
                            : 1.0;
  }
};

}  // namespace winnow::engine
