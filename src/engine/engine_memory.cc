// Estimates the memory that sequences hold and will need.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "ops/kv_page.h"

namespace winnow::engine {

// Observes what a running sequence holds, for the estimate; a different sequence in each step. Asks
// the device.
void Engine::observe_one() {
  if (running_.empty()) {
    return;
  }
  const auto& witness = running_[static_cast<std::size_t>(stats_.steps) % running_.size()];
  if (witness->cache && witness->cached() > 0) {
    estimate_.observe(witness->cache->usage());
  }
}

// Whether the pages that full layers fill with so many tokens exceed the cache. Not known of rules
// that drop or merge entries.
bool Engine::never_fits(int tokens) const {
  if (!config_.cache.traits().keeps_all) {
    return false;
  }
  int heads = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    heads += shape_.reach_of(layer) == 0
                 ? shape_.held_heads(shape_.heads_before(layer), shape_.heads_before(layer + 1))
                 : 0;
  }
  const std::size_t page = shape_.page_layout(config_.cache.format).page_bytes();
  const auto pages = static_cast<std::size_t>(heads) * static_cast<std::size_t>(tokens) /
                     static_cast<std::size_t>(ops::kPageEntries);
  return pages * page > stats_.capacity_bytes;
}

// Whether the cache is expected to hold this sequence and the running ones until they end. What
// they share counts once, and as long as any of them runs.
bool Engine::is_expected_to_fit(const Sequence& sequence) const {
  if (running_.empty()) {
    return true;
  }
  std::vector<Growing> all{growing(sequence)};
  SharedTokens shared;
  add_shared(sequence, shared);
  for (const SequencePtr& other : running_) {
    all.push_back(growing(*other));
    add_shared(*other, shared);
  }
  const double per_token = estimate_.bytes_per_token();
  return expected_peak(std::move(all), per_token, estimate_.answer_tokens()) +
             per_token * shared.count() <=
         static_cast<double>(stats_.capacity_bytes);
}

// The part that the sequence will share with others if it begins with a known prefix now.
std::shared_ptr<const SharedPart> Engine::known_part(const Sequence& sequence) {
  if (sequence.set_aside || !may_begin_with_a_prefix(sequence)) {
    return nullptr;
  }
  const auto tokens = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
  const PrefixCache::Match match = prefixes_.find(tokens, sequence.spec->adapter);
  return match.state ? match.state->shared : nullptr;
}

// Estimates the part of `page_bytes` that running sequences hold.
std::size_t Engine::running_bytes(std::size_t page_bytes) const {
  double bytes = 0.0;
  bool unknown = false;  // nothing was observed yet
  SharedTokens shared;
  for (const SequencePtr& sequence : running_) {
    if (sequence->cache) {  // it has not just ended
      unknown = estimate_.bytes_per_token() == 0.0;
      bytes += expected_bytes(sequence->cached(), sequence->shared_length());
      shared.add(sequence->shared.get());
    }
  }
  bytes += estimate_.bytes_per_token() * shared.count();
  return unknown ? page_bytes : std::min(page_bytes, static_cast<std::size_t>(bytes));
}

void Engine::add_shared(const Sequence& sequence, SharedTokens& shared) {
  shared.add(sequence.shared.get());
  if (sequence.forks_at_prompt) {  // into samples that will share the rest of the prompt
    shared.add(sequence.prompt_length() - sequence.shared_length());
  }
}

// Of a sequence that shares its first `shared` tokens: it has its own window nevertheless, and its
// own copy of the page of each head where it parts from the others.
double Engine::expected_bytes(int tokens, int shared) const {
  const std::size_t page = shape_.page_layout(config_.cache.format).page_bytes();
  const std::size_t parting = shared > 0 ? page * static_cast<std::size_t>(shape_.held_heads()) : 0;
  return estimate_.bytes_at(tokens - shared) + static_cast<double>(parting + shape_.states.bytes());
}

// What the sequence holds alone.
Growing Engine::growing(const Sequence& sequence) const {
  const int answer = sequence.length() - sequence.prompt_length();
  const int shared = sequence.forks_at_prompt ? sequence.prompt_length() : sequence.shared_length();
  return {.bytes = expected_bytes(sequence.length(), shared),
          .limit = sequence.spec->max_tokens - answer,
          .count = sequence.end_sample() - sequence.sample};
}

}  // namespace winnow::engine
