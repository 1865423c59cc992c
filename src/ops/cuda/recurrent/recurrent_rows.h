// The sequences whose tokens a recurrent layer processes together, and their states.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/delta_rule.h"

namespace winnow::ops::cuda {

/// Rows of several sequences, one sequence after another. All pointers are to device memory.
struct RecurrentRows {
  int sequences = 0;
  int longest = 1;                       // largest number of rows of a sequence
  const std::int32_t* firsts = nullptr;  // [sequences + 1] rows before each one; null: one row each
  const std::int32_t* slots = nullptr;   // [sequences]; negative: padding, skipped
  /// By slot: a sequence's state. The layer's part begins at `offset`: the matrices of all
  /// heads (a short convolution has none), then the last inputs of the convolution
  /// (ops/causal_conv.h), the oldest first.
  float* const* states = nullptr;
  std::size_t offset = 0;

  struct Range {
    int first;
    int count;
  };
  [[nodiscard]] constexpr Range range(int sequence) const {
    return firsts != nullptr ? Range{firsts[sequence], firsts[sequence + 1] - firsts[sequence]}
                             : Range{sequence, 1};
  }
  [[nodiscard]] constexpr float* state(int slot) const { return states[slot] + offset; }
};

/// Sizes of the heads: channels of all keys, of all values, and of a row of queries, keys
/// and values [T, channels]; elements of a head's matrix.
constexpr int keys_of(const DeltaRuleShape& heads) {
  return heads.key_heads * heads.key_dim;
}
constexpr int values_of(const DeltaRuleShape& heads) {
  return heads.value_heads * heads.value_dim;
}
constexpr int channels_of(const DeltaRuleShape& heads) {
  return 2 * keys_of(heads) + values_of(heads);
}
constexpr int matrix_of(const DeltaRuleShape& heads) {
  return heads.key_dim * heads.value_dim;
}

/// Throws Error unless the kernels support a convolution with this many taps.
void check_taps(int taps);
/// The same, also for such heads.
void check_recurrent(const DeltaRuleShape& heads, int taps);

/// The largest number of channels of a head.
inline constexpr int kMostRecurrentDim = 256;
/// The largest number of taps of the convolution.
inline constexpr int kMostTaps = 33;

}  // namespace winnow::ops::cuda
