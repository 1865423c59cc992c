// Splits a saved sequence into the parts of its ranks, and joins them.
#pragma once

#include <span>
#include <vector>

#include "engine/ranks/message.h"
#include "kvcache/saved_sequence.h"
#include "model/shard.h"

namespace winnow::engine {

/// The information needed to find a rank's part in the cache of a whole model.
struct SavedForm {
  const model::ModelSpec& model;
  const kvcache::CacheShape& shape;
  ops::PageLayout layout;
  kvcache::Rule rule;  // of the sequence, in full layers
};

/// Whether a rank's heads in a layer of the whole cache count: where several ranks hold the same KV
/// head, it counts on the first of them.
bool counts_heads(const kvcache::CacheShape& whole, int layer, const model::Shard& shard);

/// The part of `whole` that a rank holds.
kvcache::SavedSequence shard_saved(const SavedForm& form, const kvcache::SavedSequence& whole,
                                   const model::Shard& shard);

/// Joins the ranks' parts, in rank order, to what a single device would have saved.
kvcache::SavedSequence join_saved(const SavedForm& form,
                                  std::span<const kvcache::SavedSequence> parts);

void put(MessageWriter& message, const kvcache::SavedSequence& saved);
kvcache::SavedSequence take_saved(MessageReader& message);

}  // namespace winnow::engine
