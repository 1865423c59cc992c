#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "train/cuda/muon_kernels.h"
#include "train/newton_schulz.h"

namespace winnow::train::cuda {
namespace {

constexpr int kThreads = 256;

// The index of a parameter matrix's element i in the matrix that is orthogonalised.
__device__ int place_of(const MuonMatrix& matrix, int i) {
  return matrix.rows <= matrix.cols ? i : i % matrix.cols * matrix.rows + i / matrix.cols;
}

// body(i) for the elements of a matrix of `count`: blockIdx.y selects the matrix.
template <class Body>
__device__ void for_elements(int count, const Body& body) {
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x) * kThreads) {
    body(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    momentum_kernel(MuonBatch batch, MuonStep step, float* momentum, const float* gradients,
                    bf16* x, double* norms) {
  const MuonMatrix matrix = batch.matrices[blockIdx.y];
  const int count = batch.small * batch.large;
  bf16* out = x + std::size_t{blockIdx.y} * count;
  float squares = 0.0F;
  for_elements(count, [&](int i) {
    float& m = momentum[matrix.offset + i];
    const float g = gradients[matrix.offset + i] * step.gradient_factor;
    m = step.momentum * m + (1.0F - step.momentum) * g;
    const float u = step.momentum * m + (1.0F - step.momentum) * g;
    squares += u * u;
    out[place_of(matrix, i)] = to_bf16(u);
  });
  squares = ops::cuda::block_sum<kThreads>(squares);
  if (threadIdx.x == 0) {
    atomicAdd(norms + blockIdx.y, double{squares});
  }
}

__global__ void __launch_bounds__(kThreads)
    normalize_kernel(MuonBatch batch, bf16* x, const double* norms) {
  const int count = batch.small * batch.large;
  bf16* own = x + std::size_t{blockIdx.y} * count;
  const float norm = static_cast<float>(sqrt(norms[blockIdx.y]));
  const float scale = 1.0F / fmaxf(norm, NewtonSchulz::kLeastNorm);
  for_elements(count, [&](int i) { own[i] = to_bf16(to_float(own[i]) * scale); });
}

__global__ void __launch_bounds__(kThreads)
    polynomial_kernel(MuonBatch batch, const bf16* gram, bf16* squared) {
  const int count = batch.small * batch.small;
  const std::size_t first = std::size_t{blockIdx.y} * count;
  for_elements(count, [&](int i) {
    const float diagonal = i / batch.small == i % batch.small ? NewtonSchulz::kLinear : 0.0F;
    squared[first + i] = to_bf16(diagonal + NewtonSchulz::kCubic * to_float(gram[first + i]) +
                                 NewtonSchulz::kQuintic * to_float(squared[first + i]));
  });
}

__global__ void __launch_bounds__(kThreads)
    apply_kernel(MuonBatch batch, MuonStep step, const bf16* x, float* values, bf16* rounded) {
  const MuonMatrix matrix = batch.matrices[blockIdx.y];
  const int count = batch.small * batch.large;
  const bf16* direction = x + std::size_t{blockIdx.y} * count;
  const float rate = step.rate * matrix.scale;
  for_elements(count, [&](int i) {
    const std::size_t at = matrix.offset + i;
    const float value = step.kept * values[at] - rate * to_float(direction[place_of(matrix, i)]);
    values[at] = value;
    rounded[at] = to_bf16(value);
  });
}

dim3 blocks_of(const MuonBatch& batch, int elements) {
  constexpr int kMostBlocks = 256;  // per matrix
  const int blocks = std::min((elements + kThreads - 1) / kThreads, kMostBlocks);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(batch.count)};
}

}  // namespace

void take_momentum(const MuonBatch& batch, const MuonStep& step, float* momentum,
                   const float* gradients, bf16* x, double* norms, cudaStream_t stream) {
  momentum_kernel<<<blocks_of(batch, batch.small * batch.large), kThreads, 0, stream>>>(
      batch, step, momentum, gradients, x, norms);
  winnow::cuda::check_launch("Muon's momentum");
}

void normalize(const MuonBatch& batch, bf16* x, const double* norms, cudaStream_t stream) {
  normalize_kernel<<<blocks_of(batch, batch.small * batch.large), kThreads, 0, stream>>>(batch, x,
                                                                                         norms);
  winnow::cuda::check_launch("Muon's norm");
}

void polynomial(const MuonBatch& batch, const bf16* gram, bf16* squared, cudaStream_t stream) {
  polynomial_kernel<<<blocks_of(batch, batch.small * batch.small), kThreads, 0, stream>>>(
      batch, gram, squared);
  winnow::cuda::check_launch("Newton-Schulz's polynomial");
}

void apply_direction(const MuonBatch& batch, const MuonStep& step, const bf16* x, float* values,
                     bf16* rounded, cudaStream_t stream) {
  apply_kernel<<<blocks_of(batch, batch.small * batch.large), kThreads, 0, stream>>>(
      batch, step, x, values, rounded);
  winnow::cuda::check_launch("Muon's update");
}

}  // namespace winnow::train::cuda
