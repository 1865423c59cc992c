#include "model/rope_tables.h"

#include <algorithm>

namespace winnow::model {

void grow_queries(const QueryGrowth& growth, std::span<const std::int32_t> positions,
                  ops::Matrix<float> queries) {
  for (std::size_t t = 0; t < queries.rows; ++t) {
    for (float& x : queries.row(t)) {
      x *= growth.factor(positions[t]);
    }
  }
}

RopeTables::RopeTables(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = layer.attention();
    if (attention == nullptr || !attention->rope) {
      tables_.push_back(-1);
      continue;
    }
    const auto found = std::ranges::find(known_, *attention->rope);
    tables_.push_back(static_cast<int>(found - known_.begin()));
    if (found == known_.end()) {
      known_.push_back(*attention->rope);
    }
  }
}

int RopeTables::channels() const {
  int widest = 0;
  for (const RopeSpec& rope : known_) {
    widest = std::max(widest, rope.channels());
  }
  return widest;
}

std::vector<float> RopeTables::frequencies() const {
  const auto planes = static_cast<std::size_t>(channels() / 2);
  std::vector<float> all(known_.size() * planes, 0.0F);
  for (std::size_t i = 0; i < known_.size(); ++i) {
    std::ranges::copy(known_[i].frequencies, all.data() + i * planes);
  }
  return all;
}

std::vector<float> RopeTables::factors() const {
  std::vector<float> factors;
  for (const RopeSpec& rope : known_) {
    factors.push_back(rope.attention_factor);
  }
  return factors;
}

std::vector<ops::RopeAngles> RopeTables::angles(std::span<const std::int32_t> positions) const {
  std::vector<ops::RopeAngles> angles(known_.size());
  for (std::size_t i = 0; i < angles.size(); ++i) {
    angles[i].compute(known_[i].frequencies, positions, known_[i].attention_factor,
                      known_[i].interleaved);
  }
  return angles;
}

}  // namespace winnow::model
