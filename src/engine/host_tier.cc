#include "engine/host_tier.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/prefix_store.h"

namespace winnow::engine {

HostTier::HostTier(std::unique_ptr<HostCopies> copies, PrefixStore* store)
    : copies_(std::move(copies)), store_(store) {}

bool HostTier::keep(const PrefixCache::Prefix& prefix) {
  if (prefix.purpose == PrefixPurpose::interval) {
    return false;
  }
  if (prefixes_.touch(prefix.tokens, prefix.adapter)) {
    return true;
  }
  std::shared_ptr<const HostCopy> made = copy(*prefix.state);
  if (!made) {
    return false;
  }
  prefixes_.insert(prefix.tokens, std::move(made), prefix.purpose, prefix.adapter);
  return true;
}

std::unique_ptr<HostCopy> HostTier::set_aside(const SequenceState& sequence) {
  return copy(sequence);
}

std::unique_ptr<HostCopy> HostTier::copy(const SequenceState& sequence) {
  const Stopwatch clock;
  auto made = copies_->copy(sequence, [this] { return drop_prefix(); });
  stats_.save_seconds += clock.seconds();
  ++(made ? stats_.saved : stats_.refused);
  return made;
}

std::unique_ptr<SequenceState> HostTier::restore(const kvcache::SequenceLimits& limits,
                                                 const HostCopy& copy) {
  const Stopwatch clock;
  auto sequence = copies_->restore(limits, copy);
  stats_.restore_seconds += clock.seconds();
  if (sequence) {
    require(sequence->length() == copy.length(), "a copy of {} tokens was restored as {}",
            copy.length(), sequence->length());
    ++stats_.restored;
    stats_.restored_tokens += copy.length();
  }
  return sequence;
}

bool HostTier::drop_prefix() {
  auto prefix = prefixes_.take_oldest();
  if (prefix && prefix->is_unstored() && store_ != nullptr) {
    store_->put({std::move(prefix->tokens), prefix->state->save()});
  }
  return prefix.has_value();
}

bool HostTier::store_prefix() {
  auto prefix = store_ != nullptr ? prefixes_.take_unstored() : std::nullopt;
  if (prefix) {
    store_->put({std::move(prefix->tokens), prefix->state->save()});
  }
  return prefix.has_value();
}

HostTierStats HostTier::stats() const {
  HostTierStats stats = stats_;
  stats.bytes = copies_->used_bytes();
  stats.prefixes = prefixes_.size();
  return stats;
}

}  // namespace winnow::engine
