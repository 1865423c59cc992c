// The engine's state of one sample of a request.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/read_counter.h"
#include "engine/state_source.h"
#include "engine/truncation.h"

namespace winnow::engine {

struct Engine::Sequence {
  RequestId request = 0;
  int sample = 0;
  std::shared_ptr<const Request> spec;
  std::vector<std::int32_t> tokens;  // prompt and answer so far
  std::unique_ptr<SequenceState> cache;
  std::shared_ptr<const SharedPart> shared;     // what others share with its cache; may be null
  std::unique_ptr<HostCopy> set_aside;          // what it held when it was preempted; may be null
  std::vector<ComingState> coming;              // states of its prefixes, the longest last
  std::optional<ReadCounter> reads;             // if the request asks for them
  std::unique_ptr<TokenConstraint> constraint;  // has taken `accepted` tokens of the answer
  std::optional<Mirostat> mirostat;             // when the request asks for it
  FinishReason finish = FinishReason::none;
  bool announced = false;        // an event has reported its end
  bool admitted = false;         // it has had a cache, perhaps before a preemption
  bool forks_at_prompt = false;  // the other samples fork when its prompt is in the cache
  int reused = 0;                // tokens of a known prefix that its cache began with
  int branch = 0;  // where its tokens diverge from earlier sequences: store a state there
  int left = 0;    // position of the last stored state
  // While it waits: the request that reads the first `follows_to` tokens, which are its own too.
  RequestId leader = 0;
  int follows_to = 0;
  int scored = 1;    // prompt tokens whose log-probabilities are reported; the first has none
  int accepted = 0;  // tokens of the answer that the constraint has taken
  bool prompt_saved = false;  // on_prompt_cache has been called
  // Speculation (engine_draft.cc).
  std::unique_ptr<DraftLength> draft_length;  // null before the first draft
  std::unique_ptr<DraftState> draft_state;    // the drafter's
  std::vector<std::int32_t> draft;            // guesses that the step verifies
  std::vector<std::int32_t> with_draft;       // tokens of the step
  std::unique_ptr<SequenceState> undrafted;   // the cache before a step with a draft
  int drafted_tokens = 0;
  int accepted_tokens = 0;
  int uncommitted = 0;  // accepted tokens of a wrong draft that must be cached again

  /// This sequence stands for samples [sample, end_sample()): before it forks, these include the
  /// samples that will branch off.
  [[nodiscard]] int end_sample() const { return forks_at_prompt ? spec->samples : sample + 1; }
  /// Whether it needs its logits rather than a token chosen by token_rule(): for probabilities,
  /// other penalties, other rules, or a token for each of the samples that branch off.
  [[nodiscard]] bool needs_logits() const {
    return spec->rules.any() || spec->logprobs >= 0 || spec->prompt_logprobs >= 0 ||
           spec->on_logits || counts_tokens(spec->sampling) ||
           (forks_at_prompt && spec->sampling.temperature > 0.0);
  }
  /// The same for a step with a draft, where runners choose the most likely token in all rows but
  /// the last.
  [[nodiscard]] bool chooses_from_logits() const {
    const bool most_likely = spec->sampling.temperature == 0.0 &&
                             spec->sampling.repetition_penalty == 1.0 && !constraint;
    return needs_logits() || (!draft.empty() && !most_likely);
  }
  /// Whether some tokens are forbidden.
  [[nodiscard]] bool is_restricted() const { return constraint || spec->rules.any(); }
  [[nodiscard]] int length() const { return static_cast<int>(tokens.size()); }
  [[nodiscard]] int prompt_length() const { return static_cast<int>(spec->prompt.size()); }
  [[nodiscard]] int cached() const { return cache ? cache->length() : 0; }
  [[nodiscard]] int shared_length() const { return shared ? shared->length : 0; }
  /// Another sequence diverges at `position`. The nearest such position ahead comes first.
  void branch_at(int position) {
    branch = cached() < branch ? std::min(branch, position) : position;
  }
  /// What the rule of its cache may depend on.
  [[nodiscard]] kvcache::SequenceLimits limits() const {
    return {prompt_length(), prompt_length() + spec->max_tokens};
  }
  /// Tokens that the cache has not taken yet; the last one's logits give the next token.
  [[nodiscard]] int pending() const { return length() - cached(); }
  /// Whether the next step yields its next token and takes only its last token and those left by a
  /// wrong draft.
  [[nodiscard]] bool is_decoding() const { return cache && pending() == 1 + uncommitted; }
  /// Whether logits or log-probabilities of its prompt must still be reported.
  [[nodiscard]] bool is_scored() const {
    return (spec->prompt_logprobs >= 0 || spec->on_logits) && scored < prompt_length();
  }
  /// The length at which its cache is to be saved; 0: not at all.
  [[nodiscard]] int saved_length() const {
    return spec->on_prompt_cache && !prompt_saved ? prompt_length() - 1 : 0;
  }
  /// Whether all of its tokens must be computed, with none taken from a cached prefix.
  [[nodiscard]] bool is_watched() const { return spec->trace || spec->count_reads; }
  /// Lets the constraint, if there is one, take the answer's tokens.
  void advance_constraint() {
    for (; constraint && accepted < length() - prompt_length(); ++accepted) {
      constraint->accept(tokens[static_cast<std::size_t>(prompt_length() + accepted)]);
    }
  }
  /// The tokens that the constraint allows next. It takes the last token only here, while a device
  /// already computes the logits after it.
  void allow(std::span<std::uint64_t> allowed) {
    advance_constraint();
    constraint->allow(allowed);
  }
  /// Whether no state is still on its way.
  [[nodiscard]] bool has_arrived() const {
    return std::ranges::all_of(coming, [](const ComingState& state) {
      return state.state.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
  }
  void forget_draft() {
    draft.clear();
    undrafted.reset();
  }
  [[nodiscard]] std::span<const std::int32_t> next(int count) {
    const auto first = static_cast<std::size_t>(cached());
    if (draft.empty()) {
      return std::span(tokens).subspan(first, static_cast<std::size_t>(count));
    }
    with_draft.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
    with_draft.insert(with_draft.end(), draft.begin(), draft.end());
    return with_draft;
  }
};

}  // namespace winnow::engine
