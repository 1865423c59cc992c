// Runs a step: the forward pass, and the processing of its results.
#include <algorithm>
#include <utility>

#include "base/threads.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace winnow::engine {
namespace {

constexpr int kPrefixDistance = 256;

// Tokens between the states that a prompt stores. Each copies the window of DMS, a quarter of the
// distance at most, and the states of recurrent layers, at most the entries of so many tokens.
int prefix_distance(const kvcache::CacheShape& shape, const kvcache::CacheConfig& cache) {
  const std::size_t entry_bytes = shape.page_layout(cache.format).entry_bytes();
  const std::size_t token_bytes = static_cast<std::size_t>(shape.all_heads()) * entry_bytes;
  return std::max({kPrefixDistance, cache.traits().marks ? 4 * cache.window : 0,
                   static_cast<int>(shape.states.bytes() / std::max<std::size_t>(token_bytes, 1))});
}

}  // namespace

void Engine::run(std::span<const Share> shares) {
  std::vector<SequenceShare> steps;
  std::size_t rows = 0;
  std::int64_t tokens = 0;
  reads_prompts_ = false;
  bool needs_logits = false;
  for (const Share& share : shares) {
    Sequence& sequence = *share.sequence;
    const bool decodes = sequence.is_decoding();
    reads_prompts_ = reads_prompts_ || !decodes;
    SequenceShare step;
    step.sequence = sequence.cache.get();
    step.tokens = sequence.next(share.tokens);
    step.logit_rows = static_cast<std::size_t>(share.rows);
    step.adapter = sequence.spec->adapter.get();
    if (share.rows > 0 && sequence.chooses_from_logits()) {
      needs_logits = true;
    } else if (share.rows > 0) {
      step.rule = token_rule(sequence.spec->sampling, sequence.sample, sequence.length());
      step.history = sequence.tokens;
      if (sequence.constraint) {
        step.allow = [&sequence](std::span<std::uint64_t> allowed) { sequence.allow(allowed); };
      }
    }
    steps.push_back(step);
    rows += static_cast<std::size_t>(share.rows);
    tokens += decodes ? 1 : share.tokens;  // drafted tokens count once they are accepted
  }
  std::vector<CacheTrace> seen = watch(shares, steps);
  const std::vector<std::vector<float>> states = ask_for_states(shares, steps);
  ask_for_stream(shares, steps);
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  next_.resize(rows);
  logits_.ensure(needs_logits ? rows * vocab : 0);
  stats_.plan_seconds += step_clock_.lap();
  runner_->forward(steps, {logits_.data(), needs_logits ? rows : 0, vocab}, next_);
  const double elapsed = step_clock_.lap();
  stats_.forward_seconds += elapsed;
  (reads_prompts_ ? throughput_.prefill_tokens : throughput_.decode_tokens) += tokens;
  (reads_prompts_ ? throughput_.prefill_seconds : throughput_.decode_seconds) += elapsed;
  tell_drafter(shares, steps);
  count_reads(shares, steps);
  traces_.clear();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (!states[i].empty()) {
      shares[i].sequence->spec->on_state(states[i]);
    }
    if (shares[i].sequence->spec->trace) {
      traces_.push_back(std::move(seen[i]));
    }
  }
}

// Buffers for the number of entries that each query sees, for sequences that are watched.
std::vector<CacheTrace> Engine::watch(std::span<const Share> shares,
                                      std::span<SequenceShare> steps) const {
  std::vector<CacheTrace> seen(shares.size());
  const auto heads = static_cast<std::size_t>(shape_.all_heads());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const Sequence& sequence = *shares[i].sequence;
    if (sequence.spec->trace ||
        (sequence.reads && sequence.reads->needs_visible(shares[i].tokens))) {
      const auto tokens = static_cast<std::size_t>(shares[i].tokens);
      seen[i] = {.request = sequence.request,
                 .sample = sequence.sample,
                 .position = sequence.cached(),
                 .visible = std::vector<std::int32_t>(tokens * heads)};
      steps[i].visible = {seen[i].visible.data(), tokens, heads};
    }
  }
  return seen;
}

// Buffers for the states of prompts' last tokens, for requests that want them.
std::vector<std::vector<float>> Engine::ask_for_states(std::span<const Share> shares,
                                                       std::span<SequenceShare> steps) const {
  std::vector<std::vector<float>> states(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const Sequence& sequence = *shares[i].sequence;
    if (sequence.spec->on_state &&
        sequence.cached() + shares[i].tokens == sequence.prompt_length()) {
      states[i].resize(static_cast<std::size_t>(model_.hidden));
      steps[i].state = states[i];
    }
  }
  return states;
}

void Engine::count_reads(std::span<const Share> shares, std::span<const SequenceShare> steps) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    Sequence& sequence = *shares[i].sequence;
    if (sequence.reads) {
      sequence.reads->record(sequence.cached() - shares[i].tokens, shares[i].tokens,
                             sequence.prompt_length(), sequence.cache->live_entries(),
                             steps[i].visible);
    }
  }
}

void Engine::sample_all(std::span<const Share> shares, std::vector<TokenEvent>& events) {
  std::size_t row = 0;
  for (const Share& share : shares) {
    Sequence& sequence = *share.sequence;
    if (!sequence.draft.empty()) {
      verify(sequence, row, events);
      row += static_cast<std::size_t>(share.rows);
      continue;
    }
    if (sequence.spec->on_logits) {
      show_logits(share, row);
    }
    if (sequence.is_scored()) {
      score_prompt(share, row, events);
    }
    row += static_cast<std::size_t>(share.rows);
    leave_prefix(sequence);
    save_prompt(sequence);
    if (sequence.pending() > 0) {
      continue;  // its prompt continues in the next step
    }
    sequence.uncommitted = 0;
    const bool from_logits = sequence.needs_logits();
    std::vector<SequencePtr> forks = fork_samples(sequence);
    accept(sequence, row - 1, from_logits, events);
    for (SequencePtr& fork : forks) {
      accept(*fork, row - 1, from_logits, events);
      // A fork without room for its entries waits and reads its prompt again.
      if (fork->cache || fork->finish != FinishReason::none) {
        running_.push_back(std::move(fork));
      } else {
        waiting_.push_back(std::move(fork));
      }
    }
  }
}

// Passes the logits of prompt tokens, in the step's rows from `row` on, to the request.
void Engine::show_logits(const Share& share, std::size_t row) const {
  const Sequence& sequence = *share.sequence;
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  for (int i = 0; i < share.rows; ++i) {
    const int position = sequence.cached() - share.rows + i;
    if (position < sequence.prompt_length()) {
      const std::size_t begin = (row + static_cast<std::size_t>(i)) * vocab;
      sequence.spec->on_logits(position, logits_.span().subspan(begin, vocab));
    }
  }
}

// Reports the log-probabilities of prompt tokens, from the step's rows from `row` on.
void Engine::score_prompt(const Share& share, std::size_t row, std::vector<TokenEvent>& events) {
  Sequence& sequence = *share.sequence;
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  const int cached = sequence.cached();
  const int first = cached - share.tokens + 1;  // what the first row predicts
  const int begin = std::max(sequence.scored, first);
  const int end = std::min(cached + 1, sequence.prompt_length());
  if (begin >= end) {
    return;
  }
  sequence.scored = end;
  if (sequence.spec->prompt_logprobs < 0) {
    return;
  }
  std::vector<ScoredToken> scored(static_cast<std::size_t>(end - begin));
  parallel_each(scored.size(), [&](std::size_t i, int) {
    const std::size_t from = row + static_cast<std::size_t>(begin - first) + i;
    scored[i] =
        score(logits_.span().subspan(from * vocab, vocab),
              sequence.tokens[static_cast<std::size_t>(begin) + i], sequence.spec->prompt_logprobs);
  });
  for (ScoredToken& token : scored) {
    events.push_back({.request = sequence.request,
                      .sample = sequence.sample,
                      .token = token.token,
                      .logprob = token.logprob,
                      .rank = token.rank,
                      .alternatives = std::move(token.alternatives),
                      .of_prompt = true});
  }
}

// Stores a state of a prompt's cache for later sequences: where sequences branch, and every
// prefix_distance() tokens.
void Engine::leave_prefix(Sequence& sequence) {
  if (!config_.reuse_prefixes || sequence.is_watched()) {
    return;
  }
  const int cached = sequence.cached();
  const bool at_branch = cached == sequence.branch && cached > sequence.left;
  const int distance = prefix_distance(shape_, config_.cache);
  const bool at_interval = sequence.pending() > 0 && cached >= sequence.left + distance;
  if (at_branch || at_interval) {
    sequence.left = cached;
    keep_prefix(sequence, sequence.cache->fork(),
                at_branch ? PrefixCache::Purpose::continuation : PrefixCache::Purpose::interval);
  }
}

void Engine::keep_prefix(Sequence& sequence, std::unique_ptr<SequenceState> state,
                         PrefixCache::Purpose purpose) {
  if (!config_.reuse_prefixes || !state || state->length() < kLeastPrefix) {
    return;
  }
  const auto length = static_cast<std::size_t>(state->length());
  state->shared = share(sequence, state->length());
  prefixes_.insert(std::span(sequence.tokens).first(length), std::move(state), purpose,
                   sequence.spec->adapter);
  const auto idle_bytes = [this] {
    const std::size_t all = runner_->page_bytes();
    return all - running_bytes(all);
  };
  while (idle_bytes() > prefix_bytes_ && drop_prefix()) {
  }
}

// Notes that others share the first `length` tokens of the sequence's cache from now on.
std::shared_ptr<const SharedPart> Engine::share(Sequence& sequence, int length) {
  if (length > sequence.shared_length()) {
    sequence.shared = std::make_shared<const SharedPart>(SharedPart{length, sequence.shared});
  }
  return sequence.shared;
}

void Engine::save_prompt(Sequence& sequence) {
  if (sequence.saved_length() > 0 && sequence.cached() == sequence.saved_length()) {
    sequence.prompt_saved = true;
    sequence.spec->on_prompt_cache(sequence.cache->save());
  }
}

// Forks the other samples of a prompt that has just been read.
std::vector<Engine::SequencePtr> Engine::fork_samples(Sequence& first) {
  std::vector<SequencePtr> forks;
  if (!first.forks_at_prompt) {
    return forks;
  }
  first.forks_at_prompt = false;
  share(first, first.cached());
  for (int sample = 1; sample < first.spec->samples; ++sample) {
    auto fork = std::make_unique<Sequence>();
    fork->request = first.request;
    fork->sample = sample;
    fork->spec = first.spec;
    fork->tokens = first.tokens;
    do {
      fork->cache = first.cache->fork();
    } while (!fork->cache && drop_prefix());
    if (first.reads) {
      fork->reads = first.reads->fork();
    }
    if (first.constraint) {
      fork->constraint = first.constraint->fork();
      fork->accepted = first.accepted;
    }
    fork->shared = first.shared;
    fork->mirostat = first.mirostat;
    fork->reused = first.reused;
    fork->left = first.left;
    fork->scored = first.scored;
    if (first.draft_state) {
      fork->draft_state = first.draft_state->fork();
    }
    forks.push_back(std::move(fork));
  }
  return forks;
}

// Chooses the next token of a sequence from its logits.
std::int32_t Engine::choose(Sequence& sequence, std::span<float> logits) const {
  const Request& spec = *sequence.spec;
  if (sequence.constraint) {
    std::vector<std::uint64_t> allowed(ops::mask_words(logits.size()));
    sequence.allow(allowed);
    ops::forbid_others(allowed, logits);
    if (leaves_nothing(logits)) {
      return ops::kNoToken;
    }
  }
  if (spec.rules.any()) {
    return sample_by_rules(logits, sequence.tokens, spec, sequence.sample, sequence.length(),
                           sequence.mirostat ? &*sequence.mirostat : nullptr);
  }
  return sample(logits, sequence.tokens, spec.sampling, sequence.sample, sequence.length(),
                sequence.prompt_length());
}

// Gives a sequence its next token: the one that the runner has chosen in row `row` of the step, or
// one sampled here from the row's logits.
void Engine::accept(Sequence& sequence, std::size_t row, bool from_logits,
                    std::vector<TokenEvent>& events) {
  const Request& spec = *sequence.spec;
  if (spec.max_tokens == 0) {
    finish(sequence, FinishReason::length);
    return;
  }
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  ScoredToken chosen{.token = next_[row], .alternatives = {}};
  if (from_logits) {
    const auto logits = logits_.span().subspan(row * vocab, vocab);
    chosen.token = choose(sequence, logits);
    if (spec.logprobs >= 0 && chosen.token != ops::kNoToken) {
      chosen = score(logits, chosen.token, spec.logprobs);
    }
  }
  if (chosen.token == ops::kNoToken) {
    finish(sequence, sequence.is_restricted() ? FinishReason::no_token : FinishReason::not_numbers);
    return;
  }
  sequence.tokens.push_back(chosen.token);
  if (std::ranges::find(spec.stop_tokens, chosen.token) != spec.stop_tokens.end()) {
    finish(sequence, FinishReason::stop);
  } else if (sequence.length() - sequence.prompt_length() >= spec.max_tokens) {
    finish(sequence, FinishReason::length);
  }
  sequence.announced = sequence.finish != FinishReason::none;
  events.push_back({.request = sequence.request,
                    .sample = sequence.sample,
                    .token = chosen.token,
                    .logprob = chosen.logprob,
                    .rank = chosen.rank,
                    .alternatives = std::move(chosen.alternatives),
                    .finish = sequence.finish});
}

}  // namespace winnow::engine
