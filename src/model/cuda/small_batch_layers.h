// The linear layers of steps of many sequences and the operations between them: small-batch GEMMs
// (ops/cuda/linear/small_batch_gemm.h), which read each weight once, in the stored order.
#pragma once

#include <cstddef>
#include <memory>

#include "model/cuda/routed_experts.h"
#include "model/cuda/skinny_layers.h"
#include "ops/cuda/linear/small_batch_gemm.h"

namespace winnow::model::cuda {

/// With experts it takes only the sizes that SkinnyLayers do not: its padding rows would be routed
/// to experts of their own.
class SmallBatchLayers final : public LinearPath {
 public:
  static constexpr bool kPads = true;
  static bool takes(const DeviceModel& model, const LinearCall& call) {
    return model.has_plain_layers() && !call.adapts && call.is_step && call.may_pad &&
           call.rows <= ops::cuda::kMostSmallBatchRows && ops::cuda::has_small_batch_gemm() &&
           (model.spec().experts() == nullptr ||
            (call.rows > SkinnyLayers::most() && model.ranks() == nullptr));
  }
  static std::unique_ptr<LinearPath> make(const DeviceModel& model,
                                          const MatrixWeights& /*matrices*/,
                                          const LinearCall& /*call*/) {
    return std::make_unique<SmallBatchLayers>(model);
  }

  /// `model` must outlive this.
  explicit SmallBatchLayers(const DeviceModel& model);

  [[nodiscard]] std::string_view name() const override { return "SmallBatchLayers"; }
  [[nodiscard]] bool pads() const override { return kPads; }
  [[nodiscard]] ops::cuda::ResidualStream residual() const override;
  kvcache::cuda::QkvRows project(int layer, const QkvMemory& to, int rows, bool overlap,
                                 cudaStream_t stream) override;
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) override;
  bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                   cudaStream_t stream) override;
  [[nodiscard]] const float* hidden() const override { return hidden_.data(); }

 private:
  using Place = parallel::cuda::DeviceRanks::Place;

  [[nodiscard]] ops::cuda::SmallBatchProduct multiply(const ops::cuda::DeviceWeight& weight,
                                                      const ops::cuda::PackedRows& x,
                                                      cudaStream_t stream) const;
  /// hidden += the product + bias, and the next layer's normed input.
  void add(const ops::cuda::SmallBatchProduct& product, const FloatBuffer& bias,
           const FloatBuffer& norm, int rows, cudaStream_t stream) const;
  /// The same, but each rank may have a part of the product.
  void add_parts(Place place, const ops::cuda::SmallBatchProduct& product, const FloatBuffer& bias,
                 const FloatBuffer& norm, int rows, cudaStream_t stream) const;
  /// This rank's part.
  [[nodiscard]] float* part(Place place) const;
  /// hidden += the sum of all ranks' parts; that of embeddings sets hidden instead.
  void sum_parts(Place place, int rows, cudaStream_t stream) const;
  [[nodiscard]] std::size_t most_sums() const;
  /// Adds the experts' outputs to the residual stream, and applies the next norm.
  void finish_experts(int layer, int rows, cudaStream_t stream);
  /// The output of the dense network or the shared expert for normed_.
  [[nodiscard]] ops::cuda::SmallBatchProduct multiply_dense(int layer, int rows,
                                                            cudaStream_t stream) const;

  const DeviceModel& model_;
  winnow::cuda::DeviceBuffer<float> hidden_;       // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> embedded_;      // [rows, hidden] of the embeddings; unused
  winnow::cuda::DeviceBuffer<float> square_sums_;  // [rows]; unused
  winnow::cuda::DeviceBuffer<float> sums_;         // [parts, rows, columns] of the current product
  ops::cuda::PackedMemory normed_;                 // [rows, hidden]
  ops::cuda::PackedMemory attended_;               // [rows, query_width]
  ops::cuda::PackedMemory activated_;              // [rows, intermediate]
  RoutedExperts experts_;
  winnow::cuda::DeviceBuffer<bf16> routed_;   // [rows, hidden], the experts' input
  winnow::cuda::DeviceBuffer<float> shared_;  // [rows, hidden], the shared expert's output
};

}  // namespace winnow::model::cuda
