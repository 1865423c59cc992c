// The linear layers of a batch and what lies between them, from the weights as they lie.
#pragma once

#include <cstddef>

#include "model/cuda/device_model.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::model::cuda {

/// The residual stream of up to kMost sequences' tokens on its way through a model: everything but
/// attention, each weight read once (small_batch_gemm.h). What LargeBatchLayers does with weights
/// in rows of bf16.
class SmallBatchLayers {
 public:
  static constexpr int kMost = ops::cuda::kMostSmallBatchRows;

  /// Whether this device has kernels for it.
  static bool supported() { return ops::cuda::has_small_batch_gemm(); }

  /// `model` must outlive this.
  explicit SmallBatchLayers(const DeviceModel& model);

  /// What whoever embeds tokens writes.
  [[nodiscard]] ops::cuda::ResidualStream residual() const;
  /// The layer's q, k and v [rows, qkv_width], their bias left out: who takes them adds it.
  void project(int layer, float* qkv, int rows, cudaStream_t stream);
  /// The layer behind its attention [rows, query_width].
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream);
  /// logits [rows, vocab] behind the last layer.
  void logits(float* logits, int rows, cudaStream_t stream);

  /// [rows, hidden]
  [[nodiscard]] const float* hidden() const { return hidden_.data(); }

 private:
  [[nodiscard]] ops::cuda::SmallBatchProduct multiply(const ops::cuda::DeviceWeight& weight,
                                                      const ops::cuda::PackedRows& x,
                                                      cudaStream_t stream) const;
  /// hidden += the product + bias, and what the next layer takes of it.
  void add(const ops::cuda::SmallBatchProduct& product, const FloatBuffer& bias,
           const FloatBuffer& norm, int rows, cudaStream_t stream) const;
  [[nodiscard]] std::size_t most_sums() const;

  const DeviceModel& model_;
  winnow::cuda::DeviceBuffer<float> hidden_;       // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> embedded_;      // [rows, hidden] of the embeddings; not used
  winnow::cuda::DeviceBuffer<float> square_sums_;  // [rows] alike
  winnow::cuda::DeviceBuffer<float> sums_;         // [parts, rows, columns] of the layer in work
  ops::cuda::PackedMemory normed_;                 // [rows, hidden]
  ops::cuda::PackedMemory attended_;               // [rows, query_width]
  ops::cuda::PackedMemory activated_;              // [rows, intermediate]
};

}  // namespace winnow::model::cuda
