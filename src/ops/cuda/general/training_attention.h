// Training attention on the device for every head dimension, reach, soft cap and sinks: the
// fallback of training_attention() and its backward if no kernel with matrix instructions fits.
#pragma once

#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {

/// Bytes of shared memory per block of the backward pass, which needs more than forward.
int general_training_shared_memory(int head_dim);

/// Operands are bf16 in memory and float in products.
void launch_general_training_forward(const TrainingForward& forward, cudaStream_t stream);

/// Writes backward.sums first. The same operands give the same bits.
void launch_general_training_backward(const TrainingBackward& backward, cudaStream_t stream);

}  // namespace winnow::ops::cuda
