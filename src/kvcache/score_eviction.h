// Rules that drop entries of the archive by scores.
#pragma once

#include <span>

#include "kvcache/sequence_cache.h"
#include "ops/attention.h"
#include "ops/context.h"

namespace winnow::kvcache {

/// Updates the rule's query statistics with the queries [group * head_dim] of the token that a head
/// has just taken, if the rule keeps any.
void note_queries(SequenceCache& sequence, int layer, int head, std::span<const float> queries);

/// Adds the attention of the token that `layer` has just taken to the scores, and drops the entries
/// of the layer's heads over the rule's limit. `rows` has one row per KV head, with weights if the
/// rule observes() the token.
void evict_by_score(const ops::Context& context, SequenceCache& sequence, int layer,
                    std::span<const ops::DecodeRow> rows);

}  // namespace winnow::kvcache
