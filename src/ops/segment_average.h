// DMC's merging in training: running averages of keys and values, with soft decisions.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// Operands of forward and backward. State i is the weighted mean of entries j in
/// [max(first_key[i], i - span + 1), i], with weights omega_j * prod_{l = j + 1..i} alpha_l:
///   z_i = alpha_i z_{i-1} + omega_i,  k~_i = (alpha_i z_{i-1} k~_{i-1} + omega_i k_i) / z_i
/// from the first of these entries on (docs/method.md; the DMC paper's window grouping).
struct SegmentAverage {
  int head_dim = 0;  // D
  int span = 12;     // entries that a state averages, including its own
  /// [T], non-decreasing: where the document of each token begins.
  std::span<const std::int32_t> first_key;
  Matrix<const float> alphas;  // [T, kv_heads]: how far token i continues the segment before it
  Matrix<const float> omegas;  // [T, kv_heads]: the token's weight in the segment; above 0
  Matrix<const float> keys;    // [T, kv_heads * D]
  Matrix<const float> values;  // [T, kv_heads * D]
};

/// The states' keys and values [T, kv_heads * D].
void segment_average(const SegmentAverage& average, Matrix<float> keys, Matrix<float> values);

/// The gradients that segment_average_backward() adds to.
struct SegmentAverageGradients {
  Matrix<float> alphas;
  Matrix<float> omegas;
  Matrix<float> keys;
  Matrix<float> values;
};

/// Adds the gradients of all operands, given the states and their gradients. Has the same bits on
/// any number of threads.
void segment_average_backward(Workspace& workspace, const SegmentAverage& average,
                              Matrix<const float> keys, Matrix<const float> values,
                              Matrix<const float> dkeys, Matrix<const float> dvalues,
                              const SegmentAverageGradients& gradients);

}  // namespace winnow::ops
