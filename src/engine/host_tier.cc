#include "engine/host_tier.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/note.h"
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

RestoredCopy HostTier::restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) {
  const Stopwatch clock;
  RestoredCopy restored = copies_->restore(limits, copy);
  stats_.restore_seconds += clock.seconds();
  if (restored.damaged) {
    note_damage();
  }
  if (restored.sequence) {
    require(restored.sequence->length() == copy.length(), "a copy of {} tokens was restored as {}",
            copy.length(), restored.sequence->length());
    ++stats_.restored;
    stats_.restored_tokens += copy.length();
  }
  return restored;
}

void HostTier::note_damage() {
  if (stats_.damaged++ == 0) {
    note(
        "a state in the host's memory (--host-gib) was damaged and is computed again: the memory "
        "or the bus may be faulty. winnow_host_damaged_total counts further ones");
  }
}

// Writes a prefix to the store; false if it is damaged.
bool HostTier::store(std::vector<std::int32_t> tokens, const HostCopy& copy) {
  std::optional<kvcache::SavedSequence> saved = copy.save();
  if (!saved) {
    note_damage();
    return false;
  }
  store_->put({std::move(tokens), std::move(*saved)});
  return true;
}

bool HostTier::drop_prefix() {
  auto prefix = prefixes_.take_oldest();
  if (prefix && prefix->is_unstored() && store_ != nullptr) {
    store(std::move(prefix->tokens), *prefix->state);
  }
  return prefix.has_value();
}

bool HostTier::store_prefix() {
  auto prefix = store_ != nullptr ? prefixes_.take_unstored() : std::nullopt;
  if (prefix && !store(prefix->tokens, *prefix->state)) {
    drop(prefix->tokens, nullptr);
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
