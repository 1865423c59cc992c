// The rotary embeddings of a model: layers that rotate alike share one table of angles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/spec.h"
#include "ops/rope.h"

namespace winnow::model {

/// The RoPE that all rotating layers of `spec` share; null where none rotates. Throws Error where
/// they differ: `where` is what does not take that.
const RopeSpec* common_rope(const ModelSpec& spec, const char* where);

class RopeTables {
 public:
  explicit RopeTables(const ModelSpec& spec);

  /// Angles of each table for a step's tokens; they live as long as the step.
  [[nodiscard]] std::vector<ops::RopeAngles> angles(std::span<const std::int32_t> positions) const;

  /// The table of a layer, -1 for one that does not rotate.
  [[nodiscard]] int table_of(int layer) const { return tables_[static_cast<std::size_t>(layer)]; }
  /// Radians per position of each table [rotated channels / 2].
  [[nodiscard]] const std::vector<std::vector<float>>& frequencies() const { return frequencies_; }

 private:
  std::vector<std::vector<float>> frequencies_;
  std::vector<int> tables_;  // by layer
};

}  // namespace winnow::model
