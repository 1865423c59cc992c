// TOVA and H2O: eviction by the attention that entries receive.
#pragma once

#include <span>

#include "kvcache/sequence_cache.h"
#include "ops/attention.h"
#include "ops/context.h"

namespace winnow::kvcache {

/// Drops one entry per head if the sequence is over its budget. `rows` (one per KV head, with
/// weights) hold the attention of the token that `layer` has just taken.
///
/// TOVA (Oren et al. 2024) averages this token's attention over all query heads of the layer and
/// drops the entry with the least from all KV heads. H2O (Zhang et al. 2023) keeps the most recent
/// half of the budget. Of the other entries of each KV head it drops the one with the least
/// attention so far, summed over the group's query heads and all queries. Of equals, the oldest
/// goes.
void evict_by_score(const ops::Context& context, SequenceCache& sequence, int layer,
                    std::span<const ops::DecodeRow> rows);

}  // namespace winnow::kvcache
