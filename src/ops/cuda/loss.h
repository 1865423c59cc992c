// Losses over the vocabulary on the device, forward and backward in one pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/loss.h"

namespace winnow::ops::cuda {

/// Rows of logits whose losses are summed: logits [rows, vocab] and their gradients begin `stride`
/// elements apart, a multiple of 8.
struct LossRows {
  int rows = 0;
  int vocab = 0;
  int stride = 0;
  const float* logits = nullptr;
  const float* weights = nullptr;  // [rows]
  bf16* gradient = nullptr;
  double* loss = nullptr;  // added to, in any order
};

/// ops::cross_entropy: += sum of weights[m] * -log softmax(logits[m])[targets[m]].
void cross_entropy(const LossRows& rows, const std::int32_t* targets, cudaStream_t stream);

/// ops::distillation: += sum of weights[m] * KL of the rows' distributions; `teacher` has the same
/// layout as logits.
void distillation(Divergence divergence, const LossRows& rows, const float* teacher,
                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
