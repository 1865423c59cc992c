// Statistics of a model's queries, for rules that score entries by expected future queries.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kvcache/cache_shape.h"

namespace winnow::kvcache {

/// Statistics of a layer's queries before RoPE, by query head.
struct LayerCalibration {
  std::vector<float> means;    // [heads, head_dim]
  std::vector<float> lengths;  // [heads, plane_count()]: mean lengths of the queries in each plane
};

/// Statistics for each layer of the cache.
struct Calibration {
  std::vector<LayerCalibration> layers;
};

/// The number of planes of a query: channel pairs that RoPE rotates, then each other channel.
std::size_t plane_count(const CacheShape& shape, int layer);

/// The query's length in each plane [plane_count()].
void plane_lengths(const LayerRope& rope, std::span<const float> query, std::span<float> lengths);

/// Throws Error, which begins with `name`, unless the statistics fit a model of this shape.
void validate(const Calibration& calibration, const CacheShape& shape, std::string_view name);

}  // namespace winnow::kvcache
