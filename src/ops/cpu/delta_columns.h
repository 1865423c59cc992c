// The unit of work of delta rules on the CPU.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ops/delta_rule.h"

namespace winnow::ops::cpu {

/// Columns of a state are independent: a task is a few of them, which stay in the core's
/// first-level cache for all tokens of a chunk.
inline constexpr std::size_t kDeltaColumns = 16;

/// Columns of a value head's state from `first` on, and the matching columns of a chunk's rows.
struct DeltaColumns {
  DeltaColumns(const DeltaRuleShape& shape, std::size_t value_head, std::size_t first)
      : head(value_head),
        rows(static_cast<std::size_t>(shape.key_dim)),
        key_column(value_head / static_cast<std::size_t>(shape.value_heads / shape.key_heads) *
                   rows),
        value_column(value_head * static_cast<std::size_t>(shape.value_dim) + first),
        count(std::min(kDeltaColumns, static_cast<std::size_t>(shape.value_dim) - first)) {}

  std::size_t head;
  std::size_t rows;          // of the state: key_dim
  std::size_t key_column;    // in queries and keys
  std::size_t value_column;  // in values and results
  std::size_t count;
};

}  // namespace winnow::ops::cpu
