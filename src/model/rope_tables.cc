#include "model/rope_tables.h"

#include <algorithm>

#include "base/error.h"
#include "model/rope_frequencies.h"

namespace winnow::model {

const RopeSpec* common_rope(const ModelSpec& spec, const char* where) {
  const RopeSpec* found = nullptr;
  for (const LayerSpec& layer : spec.layers) {
    const auto& rope = layer.attention()->rope;
    require(!rope || found == nullptr || *rope == *found,
            "{}: RoPE that differs from layer to layer runs on the CPU only", where);
    found = rope ? &*rope : found;
  }
  return found;
}

RopeTables::RopeTables(const ModelSpec& spec) {
  std::vector<RopeSpec> known;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec* attention = layer.attention();
    if (attention == nullptr || !attention->rope) {
      tables_.push_back(-1);
      continue;
    }
    const auto found = std::ranges::find(known, *attention->rope);
    tables_.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) {
      known.push_back(*attention->rope);
      frequencies_.push_back(rope_frequencies(known.back()));
    }
  }
}

std::vector<ops::RopeAngles> RopeTables::angles(std::span<const std::int32_t> positions) const {
  std::vector<ops::RopeAngles> angles(frequencies_.size());
  for (std::size_t i = 0; i < angles.size(); ++i) {
    angles[i].compute(frequencies_[i], positions);
  }
  return angles;
}

}  // namespace winnow::model
