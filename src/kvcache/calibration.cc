#include "kvcache/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace winnow::kvcache {
namespace {

bool are_numbers(std::span<const float> x) {
  return std::ranges::all_of(x, [](float value) { return std::isfinite(value); });
}

}  // namespace

std::size_t plane_count(const CacheShape& shape, int layer) {
  return static_cast<std::size_t>(shape.head_dim) - shape.rope_of(layer).frequencies.size();
}

void plane_lengths(const LayerRope& rope, std::span<const float> query, std::span<float> lengths) {
  const std::size_t turned = rope.frequencies.size();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (i < turned) {
      const auto [a, b] = rope.channels_of(i);
      lengths[i] = std::sqrt(query[a] * query[a] + query[b] * query[b]);
    } else {
      lengths[i] = std::abs(query[turned + i]);
    }
  }
}

void validate(const Calibration& calibration, const CacheShape& shape, std::string_view name) {
  const auto layers = static_cast<std::size_t>(shape.layers);
  require(calibration.layers.size() == layers, "{}: statistics of {} layers, but the model has {}",
          name, calibration.layers.size(), layers);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const LayerCalibration& own = calibration.layers[static_cast<std::size_t>(layer)];
    const auto heads = static_cast<std::size_t>(shape.kv_heads_of(layer) * shape.group_of(layer));
    const auto dim = static_cast<std::size_t>(shape.head_dim);
    const std::size_t planes = plane_count(shape, layer);
    require(own.means.size() == heads * dim && own.lengths.size() == heads * planes,
            "{}: layer {} has {} means and {} lengths of queries, but the model's {} heads of {} "
            "channels have {} and {}",
            name, layer, own.means.size(), own.lengths.size(), heads, dim, heads * dim,
            heads * planes);
    require(are_numbers(own.means) && are_numbers(own.lengths),
            "{}: layer {} has statistics that are no numbers", name, layer);
  }
}

}  // namespace winnow::kvcache
