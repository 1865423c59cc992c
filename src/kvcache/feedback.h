// TOVA and H2O: which entry goes, learned from the attention just computed.
#pragma once

#include <span>

#include "kvcache/sequence_cache.h"
#include "ops/attention.h"

namespace winnow::kvcache {

/// Given the rows (one per KV head, with weights) of the token that `layer` has just taken, drops
/// one entry per head if the sequence is over its budget.
///
/// TOVA (Oren et al. 2024): the entry with the least attention of this token, averaged over all
/// query heads of the layer, leaves all its KV heads. H2O (Zhang et al. 2023): half the budget
/// belongs to the most recent entries; of the others, the one with the least attention so far,
/// summed over the group's query heads and all queries, leaves its KV head. Of equals, the oldest.
void apply_feedback(SequenceCache& sequence, int layer, std::span<const ops::DecodeRow> rows);

}  // namespace winnow::kvcache
