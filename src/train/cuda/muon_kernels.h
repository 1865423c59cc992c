// Muon's operations on matrices besides products, in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "train/cuda_memory/muon_batch.h"

namespace winnow::train::cuda {

/// MuonUpdate in the form that kernels need.
struct MuonStep {
  float momentum = 0.0F;
  float gradient_factor = 1.0F;
  float rate = 0.0F;
  float kept = 1.0F;  // 1 - rate * decay
};

/// Updates the momentum; x [count, small, large] = Nesterov's, *norms[count] += its squares.
void take_momentum(const MuonBatch& batch, const MuonStep& step, float* momentum,
                   const float* gradients, bf16* x, double* norms, cudaStream_t stream);

/// Divides each matrix of x by its norm, the root of its sum of squares.
void normalize(const MuonBatch& batch, bf16* x, const double* norms, cudaStream_t stream);

/// squared [count, small, small] becomes Newton-Schulz's polynomial of the Gram matrices.
void polynomial(const MuonBatch& batch, const bf16* gram, bf16* squared, cudaStream_t stream);

/// Updates the values in the direction x, and rounds them.
void apply_direction(const MuonBatch& batch, const MuonStep& step, const bf16* x, float* values,
                     bf16* rounded, cudaStream_t stream);

}  // namespace winnow::train::cuda
