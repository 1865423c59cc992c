// Lengths of queries and keys, and decays, of recurrent layers, as in the CPU's delta_rule.h.
#pragma once

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

/// Is added to the sum of squares of vectors that are normalised.
inline constexpr float kTinySquares = 1e-6F;

/// The length that queries and keys are normalised to, by the index of a head among those of
/// queries, keys and values; 0: values are not normalised.
inline __device__ float length_of(const DeltaRuleShape& heads, int index) {
  if (index >= 2 * heads.key_heads) {
    return 0.0F;
  }
  return index < heads.key_heads ? rsqrtf(static_cast<float>(heads.key_dim)) : 1.0F;
}

/// The factor that gives a vector with this sum of squares the length `length`.
inline __device__ float length_factor(float length, float squares) {
  return length > 0.0F ? length * rsqrtf(squares + kTinySquares) : 1.0F;
}

inline __device__ float soft_plus(float x) {
  constexpr float kLinear = 20.0F;  // above this value it is x to float precision
  return x > kLinear ? x : log1pf(expf(x));
}

}  // namespace winnow::ops::cuda
