// Made-up statistics of queries, for tests of calibrated rules.
#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "base/random.h"
#include "kvcache/calibration.h"

namespace winnow::testing {

inline std::shared_ptr<const kvcache::Calibration> any_calibration(
    const kvcache::CacheShape& shape) {
  kvcache::Calibration calibration;
  Random random(7, 0);
  for (int layer = 0; layer < shape.layers; ++layer) {
    kvcache::LayerCalibration& own = calibration.layers.emplace_back();
    const int heads = shape.kv_heads_of(layer) * shape.group_of(layer);
    for (int i = 0; i < heads * shape.head_dim; ++i) {
      own.means.push_back(static_cast<float>(random.normal()));
    }
    const std::size_t planes = kvcache::plane_count(shape, layer);
    for (std::size_t i = 0; i < static_cast<std::size_t>(heads) * planes; ++i) {
      own.lengths.push_back(std::abs(static_cast<float>(2.0 * random.normal())));
    }
  }
  return std::make_shared<const kvcache::Calibration>(std::move(calibration));
}

/// `shape` with the statistics that calibrated rules need.
inline kvcache::CacheShape calibrated(kvcache::CacheShape shape) {
  shape.calibration = any_calibration(shape);
  return shape;
}

}  // namespace winnow::testing
