// The experts of a layer and their buffers, for all linear paths.
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

  /// Whether route_few() supports this model.
  static bool routes_few(const ModelSpec& spec);

  /// How many rows to pass at a time, a multiple of 128: up to 8,192 (4,096 where tokens are not
  /// packed), of which the buffers take about 1 GiB at most. A cache that takes all there is leaves
  /// a tenth of the memory for them and the other activations.
  [[nodiscard]] int rows_at_once() const;

  /// Makes room for steps of `rows` rows; stored values may be lost.
  void reserve(int rows);

  /// Routes `normed` [rows, hidden]; the router's product has `padded` rows.
  void route(int layer, ops::cuda::Linear& linear, const bf16* normed, int rows, int padded,
             cudaStream_t stream);
  /// The same for up to kMostRoutedRows rows of the residual stream; `normed` receives the input
  /// of the experts.
  void route_few(int layer, const float* hidden, bf16* normed, int rows, cudaStream_t stream);

  /// Whether add_skinny() supports this layer, and is the fastest way for `rows` rows.
  [[nodiscard]] bool takes_skinny(int layer, int rows) const;
  /// Router, experts and sum in one call: applies the layer's norm and adds the experts' outputs to
  /// the residual stream. `normed` is scratch and may be the stream's own.
  void add_skinny(int layer, bf16* normed, const ops::cuda::ResidualStream& residual, int rows,
                  cudaStream_t stream);

  /// Computes the experts' outputs for the routed rows.
  void multiply(int layer, const bf16* normed, int rows, cudaStream_t stream);

  /// Adds multiply()'s outputs to sum [rows, hidden] or to the residual stream.
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
  winnow::cuda::DeviceBuffer<bf16> products_;   // [rows * active, 2 * intermediate]
  winnow::cuda::DeviceBuffer<bf16> activated_;  // [rows * active, intermediate]
  winnow::cuda::DeviceBuffer<bf16> out_;        // [rows * active, hidden]
};

}  // namespace winnow::model::cuda
