// The rotary embeddings of a model: layers that rotate alike share one table of angles.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/spec.h"
#include "ops/matrix.h"
#include "ops/rope.h"

namespace winnow::model {

/// Multiplies each row of queries by its position's factor; that of gradients is the same.
void grow_queries(const QueryGrowth& growth, std::span<const std::int32_t> positions,
                  ops::Matrix<float> queries);

class RopeTables {
 public:
  explicit RopeTables(const ModelSpec& spec);

  /// Angles of each table for a step's tokens; they live as long as the step.
  [[nodiscard]] std::vector<ops::RopeAngles> angles(std::span<const std::int32_t> positions) const;

  /// The table of a layer, -1 for one that does not rotate.
  [[nodiscard]] int table_of(int layer) const { return tables_[static_cast<std::size_t>(layer)]; }
  /// What each table is of.
  [[nodiscard]] const std::vector<RopeSpec>& ropes() const { return known_; }

  // For devices, where all tables are as wide as the widest: frequencies [tables, channels() / 2],
  // zeros behind a narrower table's own, and attention factors [tables].
  [[nodiscard]] int channels() const;
  [[nodiscard]] std::vector<float> frequencies() const;
  [[nodiscard]] std::vector<float> factors() const;

 private:
  std::vector<RopeSpec> known_;
  std::vector<int> tables_;  // by layer
};

}  // namespace winnow::model
