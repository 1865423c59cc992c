// The experts of a layer and the memory that they need, for all linear paths.
#pragma once

#include <cuda_runtime_api.h>

#include "model/cuda/device_model.h"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

class RoutedExperts {
 public:
  /// `model` must outlive this; it may have no experts.
  explicit RoutedExperts(const DeviceModel& model) : model_(model) {}

  /// Whether route_few() takes this model.
  static bool routes_few(const ModelSpec& spec);

  /// Makes room for steps of so many rows; what was stored may be lost.
  void reserve(int rows);

  /// The routes of `normed` [rows, hidden], of which the router multiplies `padded` rows.
  void route(int layer, ops::cuda::Linear& linear, const bf16* normed, int rows, int padded,
             cudaStream_t stream);
  /// The same for up to kMostRoutedRows rows of the residual stream; `normed` receives what the
  /// experts take.
  void route_few(int layer, const float* hidden, bf16* normed, int rows, cudaStream_t stream);

  /// Whether add_skinny() takes this layer, and is the fastest way for so many rows.
  [[nodiscard]] bool takes_skinny(int layer, int rows) const;
  /// Routes, experts and sums at once: the residual stream += what the experts make of it under the
  /// layer's norm. `normed` is scratch and may be the stream's.
  void add_skinny(int layer, bf16* normed, const ops::cuda::ResidualStream& residual, int rows,
                  cudaStream_t stream);

  /// What the experts make of the rows that were routed.
  void multiply(int layer, const bf16* normed, int rows, cudaStream_t stream);

  /// sum [rows, hidden], or the residual stream, += what multiply() has left.
  void add(int layer, float* sum, int rows, cudaStream_t stream) const;
  void add(int layer, const ops::cuda::ResidualStream& residual, int rows,
           cudaStream_t stream) const;

 private:
  [[nodiscard]] ops::cuda::RouterInput router_input(int layer, const float* hidden) const;
  [[nodiscard]] ops::cuda::ExpertsMatrix gate_up(int layer) const;
  [[nodiscard]] ops::cuda::ExpertsMatrix down(int layer) const;
  [[nodiscard]] const FeedForwardSpec& spec(int layer) const {
    return model_.spec().layer(layer).feed_forward;
  }

  const DeviceModel& model_;
  ops::cuda::RoutesMemory routes_;
  winnow::cuda::DeviceBuffer<float> logits_;    // [rows, padded_experts]
  winnow::cuda::DeviceBuffer<bf16> gate_up_;    // [rows * active, 2 * intermediate]
  winnow::cuda::DeviceBuffer<bf16> activated_;  // [rows * active, intermediate]
  winnow::cuda::DeviceBuffer<bf16> out_;        // [rows * active, hidden]
};

}  // namespace winnow::model::cuda
