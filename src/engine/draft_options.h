// The user's options for speculation.
#pragma once

#include <string_view>

#include "engine/engine.h"
#include "kvcache/cache_shape.h"
#include "winnow/llm.h"

namespace winnow::engine {

/// The most tokens to draft in a step; 0: speculation is off.
int parse_speculate(const LoadOptions& options);

/// Whether the MTP layer in the model's own files drafts.
bool drafts_by_mtp(const LoadOptions& options);

/// The options with which the draft model of `options`, or the MTP layer, is loaded: it computes
/// where and as the model does, with the cache rule that its checkpoint was trained for.
LoadOptions options_of_draft_model(const LoadOptions& options);

/// Divides the memory for cache between a model and its draft model, in proportion to the bytes of
/// a token if nothing is evicted. The draft model gets a quarter at most: a sequence without room
/// there is not drafted for, one without room in the model's cache waits. `option`: for messages.
void share_cache(EngineConfig& config, const kvcache::CacheShape& shape,
                 const kvcache::CacheConfig& draft_cache, const kvcache::CacheShape& draft_shape,
                 std::string_view option = "--draft-model");

}  // namespace winnow::engine
