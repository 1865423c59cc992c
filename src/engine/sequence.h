// One sample of a request inside the engine.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_store.h"
#include "engine/read_counter.h"
#include "engine/truncation.h"

namespace winnow::engine {

/// The fewest tokens that a cached prefix must save to be used: computing fewer is as fast.
inline constexpr int kLeastPrefix = 32;

struct Engine::Sequence {
  RequestId request = 0;
  int sample = 0;
  std::shared_ptr<const Request> spec;
  std::vector<std::int32_t> tokens;  // prompt and answer so far
  std::unique_ptr<SequenceState> cache;
  std::future<std::optional<SavedState>> stored;  // a prefix that is read from disk, if valid()
  std::optional<ReadCounter> reads;               // if the request wants them
  std::unique_ptr<TokenConstraint> constraint;    // of its answer, as far as that was `accepted`
  std::optional<Mirostat> mirostat;               // when the request asks for it
  FinishReason finish = FinishReason::none;
  bool announced = false;        // an event has reported its end
  bool forks_at_prompt = false;  // the other samples fork when its prompt is in the cache
  int reused = 0;                // tokens of a known prefix that its cache began with
  int branch = 0;    // where its tokens diverge from earlier sequences: store a state there
  int left = 0;      // where the last state was stored
  int scored = 1;    // prompt tokens whose log-probabilities are reported; the first has none
  int accepted = 0;  // tokens of the answer that the constraint knows

  /// Samples [sample, end_sample()) are this sequence's: until it forks, those that will branch off
  /// are, too.
  [[nodiscard]] int end_sample() const { return forks_at_prompt ? spec->samples : sample + 1; }
  /// Whether it needs more of its logits than a token by token_rule(): probabilities, other
  /// penalties, other rules, or a token for each of the samples that branch off.
  [[nodiscard]] bool needs_logits() const {
    return spec->rules.any() || spec->logprobs >= 0 || spec->prompt_logprobs >= 0 ||
           spec->on_logits || counts_tokens(spec->sampling) ||
           (forks_at_prompt && spec->sampling.temperature > 0.0);
  }
  /// Whether some tokens are forbidden.
  [[nodiscard]] bool is_restricted() const { return constraint || spec->rules.any(); }
  [[nodiscard]] int length() const { return static_cast<int>(tokens.size()); }
  [[nodiscard]] int prompt_length() const { return static_cast<int>(spec->prompt.size()); }
  [[nodiscard]] int cached() const { return cache ? cache->length() : 0; }
  /// Tokens that the cache has not taken yet; the last one's logits give the next token.
  [[nodiscard]] int pending() const { return length() - cached(); }
  /// Whether logits or log-probabilities of its prompt must still be reported.
  [[nodiscard]] bool is_scored() const {
    return (spec->prompt_logprobs >= 0 || spec->on_logits) && scored < prompt_length();
  }
  /// Where its cache is to be saved.
  [[nodiscard]] int saved_length() const { return spec->save_prompt ? prompt_length() - 1 : 0; }
  /// Whether all of its tokens must be computed, none found in the cache.
  [[nodiscard]] bool is_watched() const { return spec->trace || spec->count_reads; }
  /// What the constraint allows to come next; it hears of the last token only now, while a device
  /// computes what follows it.
  void allow(std::span<std::uint64_t> allowed) {
    for (; accepted < length() - prompt_length(); ++accepted) {
      constraint->accept(tokens[static_cast<std::size_t>(prompt_length() + accepted)]);
    }
    constraint->allow(allowed);
  }
  [[nodiscard]] std::span<const std::int32_t> next(int count) const {
    return std::span(tokens).subspan(static_cast<std::size_t>(cached()),
                                     static_cast<std::size_t>(count));
  }
};

}  // namespace winnow::engine
