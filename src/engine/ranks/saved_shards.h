// A sequence's cache as its ranks hold it, and as one.
#pragma once

#include <span>
#include <vector>

#include "engine/ranks/message.h"
#include "kvcache/saved_sequence.h"
#include "model/shard.h"

namespace winnow::engine {

/// What it takes to find a rank's part in the cache of a whole model.
struct SavedForm {
  const model::ModelSpec& model;
  const kvcache::CacheShape& shape;
  ops::PageLayout layout;
  kvcache::Rule rule;  // of the sequence, in full layers
};

/// The part of `whole` that a rank holds.
kvcache::SavedSequence shard_saved(const SavedForm& form, const kvcache::SavedSequence& whole,
                                   const model::Shard& shard);

/// The whole of what the ranks hold, by rank: what one device would have saved.
kvcache::SavedSequence join_saved(const SavedForm& form,
                                  std::span<const kvcache::SavedSequence> parts);

void put(MessageWriter& message, const kvcache::SavedSequence& saved);
kvcache::SavedSequence take_saved(MessageReader& message);

}  // namespace winnow::engine
