// Muon on a device: train/muon.h with products in bf16.
#pragma once

#include <vector>

#include "base/cuda/device.h"
#include "ops/cuda/linear/linear.h"
#include "train/cuda/muon_kernels.h"
#include "train/muon.h"
#include "train/partition.h"

namespace winnow::train::cuda {

/// Arrays in the order of Parameters; `rounded` has matrices only.
struct MuonArrays {
  float* values = nullptr;
  bf16* rounded = nullptr;
  const float* gradients = nullptr;
  float* momentum = nullptr;
};

/// Matrices of one shape, or of one shape and its transpose, are orthogonalised together.
class Muon {
 public:
  /// For a rank's part of the parameters, which cuts no matrix. Arrays hold that part.
  Muon(const MuonOptions& options, const ParameterList& list, const Partition& partition);
  /// Error naming the matrix whose rows do not begin at multiples of 16 bytes.
  static void require_supported(const model::ModelSpec& spec);

  /// Runs all products once, on an empty input, so that `linear` may time them.
  void warm_up(ops::cuda::Linear& linear, cudaStream_t stream);
  void apply(const MuonUpdate& update, const MuonArrays& arrays, ops::cuda::Linear& linear,
             cudaStream_t stream);

 private:
  /// Orthogonalises x_[0].
  void orthogonalize(const MuonBatch& batch, ops::cuda::Linear& linear, cudaStream_t stream);

  MuonOptions options_;
  winnow::cuda::DeviceBuffer<MuonMatrix> matrices_;
  std::vector<MuonBatch> batches_;
  winnow::cuda::DeviceBuffer<bf16> x_;     // [count, small, large]
  winnow::cuda::DeviceBuffer<bf16> next_;  // the same
  winnow::cuda::DeviceBuffer<bf16> gram_;  // [count, small, small]
  winnow::cuda::DeviceBuffer<bf16> squared_;
  winnow::cuda::DeviceBuffer<double> norms_;  // [count]
};

}  // namespace winnow::train::cuda
