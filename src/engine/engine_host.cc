// What moves between the cache and the host's memory.
#include <span>
#include <utility>

#include "engine/engine.h"
#include "engine/sequence.h"

namespace winnow::engine {

// Copies what a sequence that is being preempted holds, if that is worth it and there is room.
void Engine::set_aside(Sequence& sequence) {
  if (host_ && sequence.cached() >= kLeastPrefix) {
    sequence.set_aside = host_->set_aside(*sequence.cache);
  }
}

// Restores what was set aside. If there is no room beside running sequences, it stays aside until
// one of them has ended. If there are none, or the copy is damaged, the sequence is computed again.
void Engine::restore_set_aside(Sequence& sequence) {
  if (!sequence.set_aside) {
    return;
  }
  RestoredCopy restored = restore(sequence.limits(), *sequence.set_aside);
  sequence.cache = std::move(restored.sequence);
  if (restored.damaged || (!sequence.cache && running_.empty())) {
    sequence.set_aside.reset();
  }
}

// Continues from the longest prefix in the host's memory, if it is longer than `known` tokens.
// Keeps it in the cache for other sequences. Returns the number of tokens that the sequence shares
// with some sequence there.
int Engine::open_hosted(Sequence& sequence, int known) {
  if (!host_) {
    return 0;
  }
  const auto tokens = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
  const HostTier::Match match = host_->find(tokens, sequence.spec->adapter);
  if (!sequence.cache && match.length >= known + kLeastPrefix) {
    RestoredCopy restored = restore({}, *match.state);
    if (restored.damaged) {
      host_->drop(tokens.first(static_cast<std::size_t>(match.length)), sequence.spec->adapter);
    }
    sequence.cache = std::move(restored.sequence);
    if (sequence.cache) {  // the copy, which stays, will be written to the disk
      keep_prefix(sequence, sequence.cache->fork(), PrefixCache::Purpose::stored);
    }
  }
  return match.common;
}

// Restores a copy, for which prefixes make room if there is too little.
RestoredCopy Engine::restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) {
  RestoredCopy restored;
  do {
    restored = host_->restore(limits, copy);
  } while (!restored.sequence && !restored.damaged && drop_prefix());
  return restored;
}

}  // namespace winnow::engine
