// The size of a cache without --kv-gib.
#pragma once

#include <cstddef>
#include <limits>

#include "kvcache/cache_shape.h"
#include "kvcache/rule.h"

namespace winnow::engine {

/// CacheConfig::max_bytes of a cache that takes all free memory. The backend, which knows its
/// weights, replaces it by a number.
inline constexpr std::size_t kAllThereIs = std::numeric_limits<std::size_t>::max();

/// The cache's part of the memory that weights leave: activations and tables need room, too.
constexpr std::size_t cache_room(std::size_t left) {
  return left / 10 * 9;
}

/// The memory that weights must leave for a cache of `bytes` bytes.
constexpr double memory_of_cache(double bytes) {
  return bytes * 10 / 9;
}

/// Whether a device's engine also holds copies of its matrices for prompts and large batches:
/// always, if the cache wants so few bytes that they fit beside it. If it takes all there is, they
/// may take a fourth of the memory that weights leave. Without copies, a prompt or a step of many
/// sequences moves the weights two more times (docs/lab/gpu.md), except in fp8 products of up to
/// 256 rows.
constexpr bool has_room_for_copies(std::size_t copies, std::size_t left, std::size_t wanted) {
  if (wanted == kAllThereIs) {
    return copies <= left / 4;
  }
  return copies <= cache_room(left) && wanted <= cache_room(left) - copies;
}

/// Bytes of a cache that has one page for each KV head, and a state if layers are recurrent. A
/// smaller one refuses every request.
std::size_t least_cache_bytes(const kvcache::CacheConfig& config, const kvcache::CacheShape& shape);

}  // namespace winnow::engine
