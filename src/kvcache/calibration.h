// Statistics of a model's queries, for rules that score entries by queries to come.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kvcache/cache_shape.h"

namespace winnow::kvcache {

/// Of a layer's queries as they were before RoPE, by query head.
struct LayerCalibration {
  std::vector<float> means;    // [heads, head_dim]
  std::vector<float> lengths;  // [heads, plane_count()]: their mean lengths in each plane
};

/// By layer of the cache.
struct Calibration {
  std::vector<LayerCalibration> layers;
};

/// A query's planes: those that a layer's RoPE turns, then each channel that it does not, as one.
std::size_t plane_count(const CacheShape& shape, int layer);

/// Its lengths in them [plane_count()].
void plane_lengths(const LayerRope& rope, std::span<const float> query, std::span<float> lengths);

/// Throws Error, which begins with `name`, unless the statistics are those of such a model.
void validate(const Calibration& calibration, const CacheShape& shape, std::string_view name);

}  // namespace winnow::kvcache
