// Muon's operations on matrices besides products, in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"

namespace winnow::train::cuda {

/// A matrix in the flat arrays of parameters.
struct MuonMatrix {
  std::size_t offset = 0;
  int rows = 0;
  int cols = 0;
  float scale = 0.0F;  // muon_scale()
};

/// Matrices that are updated together: as rows by columns or transposed, small by large.
struct MuonBatch {
  const MuonMatrix* matrices = nullptr;
  int count = 0;
  int small = 0;  // rows of the orthogonalised matrix
  int large = 0;  // its columns
};

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
