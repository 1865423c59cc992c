// What queries, keys and decays of recurrent layers are made of, as the CPU's delta_rule.h has it.
#pragma once

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

/// Is added to the squares of what becomes of a certain length.
inline constexpr float kTinySquares = 1e-6F;

/// The length that queries and keys become of, by the number of a head among those of queries, keys
/// and values; 0: values stay as they are.
inline __device__ float length_of(const DeltaRuleShape& heads, int index) {
  if (index >= 2 * heads.key_heads) {
    return 0.0F;
  }
  return index < heads.key_heads ? rsqrtf(static_cast<float>(heads.key_dim)) : 1.0F;
}

/// What a vector of so many squares is multiplied by to become of it.
inline __device__ float length_factor(float length, float squares) {
  return length > 0.0F ? length * rsqrtf(squares + kTinySquares) : 1.0F;
}

inline __device__ float soft_plus(float x) {
  constexpr float kLinear = 20.0F;  // from there on it is x
  return x > kLinear ? x : log1pf(expf(x));
}

}  // namespace winnow::ops::cuda
