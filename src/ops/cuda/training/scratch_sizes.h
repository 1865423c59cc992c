// What kernels of training need besides their operands. Includes no CUDA: builds without it plan
// memory. tests/ops/cuda/training/scratch_sizes_test.cc compares it with what the kernels take.
#pragma once

#include <cstddef>

#include "ops/delta_rule.h"

namespace winnow::ops::cuda {

/// Tokens of a chunk of the delta rule.
inline constexpr int kDeltaChunk = 64;

/// The results of training_delta_backward().
struct TrainingDeltaGradients {
  float* queries = nullptr;  // [T, value_heads, key_dim]: separately for each value head
  float* keys = nullptr;     // the same
  float* values = nullptr;   // [T, value_width]
  float* rates = nullptr;    // [T, value_heads]
  float* log_decays = nullptr;
};

/// Floats of DeltaScratch for T tokens: of each chunk its decays, three matrices of its tokens, its
/// state and the state's gradient; of each token its update and the update's gradient.
inline std::size_t delta_scratch(const DeltaRuleShape& heads, int rows) {
  const auto chunks = static_cast<std::size_t>((rows + kDeltaChunk - 1) / kDeltaChunk);
  const auto of_chunk = static_cast<std::size_t>(kDeltaChunk + 3 * kDeltaChunk * kDeltaChunk +
                                                 2 * heads.key_dim * heads.value_dim);
  return chunks * static_cast<std::size_t>(heads.value_heads) * of_chunk +
         2 * static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads.value_width());
}

/// The largest number of entries that a state can average.
inline constexpr int kMostMergeSpan = 32;

/// Floats that segment_average_backward() needs.
inline std::size_t merging_scratch(int rows, int kv_heads) {
  return std::size_t{3} * static_cast<std::size_t>(rows) * static_cast<std::size_t>(kv_heads) *
         kMostMergeSpan;
}

}  // namespace winnow::ops::cuda
