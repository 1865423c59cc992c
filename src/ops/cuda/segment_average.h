// DMC's merging in training, on the device: ops/segment_average.h in bf16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/training/scratch_sizes.h"

namespace winnow::ops::cuda {

/// Operands of forward and backward: like ops::SegmentAverage, in device memory, with weights given
/// as logits, whose sigmoids they are.
struct SegmentAverage {
  int rows = 0;  // T
  int kv_heads = 0;
  int head_dim = 0;                         // a multiple of 8, at most kMostHeadDim
  int span = 12;                            // at most kMostMergeSpan
  const std::int32_t* first_key = nullptr;  // [T]
  const float* alphas = nullptr;            // [T, kv_heads]
  const float* omega_logits = nullptr;      // [T, kv_heads]
  const bf16* keys = nullptr;               // [T, kv_heads * head_dim]
  const bf16* values = nullptr;
};

/// The states' keys and values [T, kv_heads * head_dim].
void segment_average(const SegmentAverage& average, bf16* keys, bf16* values, cudaStream_t stream);

/// Gradients that segment_average_backward() overwrites.
struct SegmentAverageGradients {
  float* alphas = nullptr;
  float* omega_logits = nullptr;
  bf16* keys = nullptr;
  bf16* values = nullptr;
};

/// The number of scratch elements for the backward pass: merging_scratch().
std::size_t segment_average_scratch(int rows, int kv_heads);

/// Given the gradients of the states' keys and values. The same operands give the same bits.
void segment_average_backward(const SegmentAverage& average, const bf16* dkeys, const bf16* dvalues,
                              const SegmentAverageGradients& gradients, float* scratch,
                              cudaStream_t stream);

}  // namespace winnow::ops::cuda
