// DMC's merging while training: running averages of keys and values, with soft decisions.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// What forward and backward share. State i is the weighted mean of entries j in
/// [max(first_key[i], i - span + 1), i], with weights omega_j * prod_{l = j + 1..i} alpha_l: what
///   z_i = alpha_i z_{i-1} + omega_i,  k~_i = (alpha_i z_{i-1} k~_{i-1} + omega_i k_i) / z_i
/// gives from the first of them on (docs/method.md; the DMC paper's window grouping).
struct SegmentAverage {
  int head_dim = 0;  // D
  int span = 12;     // entries that a state looks back over, itself included
  /// [T], non-decreasing: where the document of each token begins.
  std::span<const std::int32_t> first_key;
  Matrix<const float> alphas;  // [T, kv_heads]: how far token i goes on with the segment before it
  Matrix<const float> omegas;  // [T, kv_heads]: its weight there; more than 0
  Matrix<const float> keys;    // [T, kv_heads * D]
  Matrix<const float> values;  // [T, kv_heads * D]
};

/// The states' keys and values [T, kv_heads * D].
void segment_average(const SegmentAverage& average, Matrix<float> keys, Matrix<float> values);

/// What segment_average_backward() adds to.
struct SegmentAverageGradients {
  Matrix<float> alphas;
  Matrix<float> omegas;
  Matrix<float> keys;
  Matrix<float> values;
};

/// Adds the gradients of all operands, given the states and their gradients. The same to the last
/// bit on any number of threads.
void segment_average_backward(Workspace& workspace, const SegmentAverage& average,
                              Matrix<const float> keys, Matrix<const float> values,
                              Matrix<const float> dkeys, Matrix<const float> dvalues,
                              const SegmentAverageGradients& gradients);

}  // namespace winnow::ops
