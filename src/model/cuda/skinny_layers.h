// The linear layers of a few rows and the operations between them, for decode steps and short
// prompt chunks: skinny GEMMs (ops/cuda/linear/skinny_gemm.h), which read each weight once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "model/cuda/fast_paths.h"
#include "model/cuda/routed_experts.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// One kernel per GEMM. Supports experts.
class SkinnyLayers : public LinearPath {
 public:
  /// The most rows that this device has room for.
  static int most() { return ops::cuda::most_skinny_rows(); }
  static constexpr bool kPads = false;
  static bool takes(const DeviceModel& model, const LinearCall& call) {
    return model.has_plain_layers() && !call.adapts && !call.ends && call.rows <= most() &&
           model.can_sum_rows() && (model.ranks() == nullptr || model.spec().experts() == nullptr);
  }
  static std::unique_ptr<LinearPath> make(const DeviceModel& model,
                                          const MatrixWeights& /*matrices*/,
                                          const LinearCall& /*call*/) {
    return std::make_unique<SkinnyLayers>(model);
  }

  /// `model` must outlive this.
  explicit SkinnyLayers(const DeviceModel& model);

  [[nodiscard]] std::string_view name() const override { return "SkinnyLayers"; }
  [[nodiscard]] bool pads() const override { return kPads; }
  [[nodiscard]] ops::cuda::ResidualStream residual() const override;
  kvcache::cuda::QkvRows project(int layer, const QkvMemory& to, int rows, bool overlap,
                                 cudaStream_t stream) override;
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) override;
  bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                   cudaStream_t stream) override;
  const bf16* keep_rows(const std::int32_t* indices, int rows, bf16* attended,
                        cudaStream_t stream) override;
  ops::cuda::SkinnyInput finish(int rows, cudaStream_t stream) override;
  [[nodiscard]] const float* hidden() const override { return hidden_.data(); }

  /// With ranks: sums their parts of the embedded tokens into the residual stream.
  void sum_embedded(int rows, cudaStream_t stream) const;

  /// The GEMMs themselves, for callers that run several in one kernel.
  [[nodiscard]] ops::cuda::SkinnyGemm projection(int layer, float* qkv) const;
  [[nodiscard]] std::array<ops::cuda::SkinnyGemm, 3> behind_attention(int layer,
                                                                      const bf16* attended) const;
  [[nodiscard]] ops::cuda::SkinnyInput normed() const;

 protected:
  [[nodiscard]] const DeviceModel& model() const { return model_; }
  /// Runs GEMMs in one kernel; each takes the output of the one before.
  void run(std::span<const ops::cuda::SkinnyGemm> gemms, int rows, bool overlap,
           cudaStream_t stream) const;

 private:
  [[nodiscard]] ops::cuda::ResidualStream residual(const FloatBuffer& next_norm) const;
  [[nodiscard]] ops::cuda::SkinnyGemm attention_output(int layer, const bf16* attended) const;
  void finish_experts(int layer, int rows, cudaStream_t stream);
  /// Computes shared_, the shared expert's output for normed_, and adds it to the residual stream.
  void add_shared(int layer, int rows, cudaStream_t stream);

  const DeviceModel& model_;
  int parts_;  // of a row's square sum that a layer leaves
  ops::cuda::SkinnyScratch scratch_;
  winnow::cuda::DeviceBuffer<float> hidden_;  // [rows, hidden]
  winnow::cuda::DeviceBuffer<float> part_;    // [rows, hidden], this rank's part of the embeddings
  winnow::cuda::DeviceBuffer<bf16> normed_;   // [rows, hidden], unscaled
  winnow::cuda::DeviceBuffer<float> square_sums_;    // [parts, rows]
  winnow::cuda::DeviceBuffer<bf16> activated_;       // [rows, intermediate]
  winnow::cuda::DeviceBuffer<float> kept_hidden_;    // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> kept_attention_;  // [rows, query_width]
  RoutedExperts experts_;
  winnow::cuda::DeviceBuffer<float> shared_;  // [rows, hidden], the shared expert's output
};

/// One kernel for all GEMMs between two attentions.
class SkinnyChain final : public SkinnyLayers {
 public:
  /// Not many rows of wide models: they do not fit into a block and are read again for each tile.
  static bool takes(const DeviceModel& model, const LinearCall& call);
  static std::unique_ptr<LinearPath> make(const DeviceModel& model,
                                          const MatrixWeights& /*matrices*/,
                                          const LinearCall& /*call*/) {
    return std::make_unique<SkinnyChain>(model);
  }

  using SkinnyLayers::SkinnyLayers;

  [[nodiscard]] std::string_view name() const override { return "SkinnyChain"; }
  kvcache::cuda::QkvRows next_layer(int layer, const bf16* attended, const QkvMemory& to, int rows,
                                    cudaStream_t stream) override;
  bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                   cudaStream_t stream) override;
};

}  // namespace winnow::model::cuda
