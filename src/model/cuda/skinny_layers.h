// The linear layers of a few rows and what lies between them, for decode steps and short chunks of
// prompts.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/cuda/device_model.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// The residual stream of up to kMost tokens on its way through a model: everything but attention,
/// each weight read once (skinny_gemm.h). What LargeBatchLayers does for more.
class SkinnyLayers {
 public:
  static constexpr int kMost = ops::cuda::kMostSkinnyRows;
  /// Tokens for which this device has room.
  static int most() { return ops::cuda::most_skinny_rows(); }
  /// Rows for which a kernel takes several layers. More of wide models find no room in a block and
  /// come again for each tile.
  static int most_chained(const ModelConfig& config);

  /// `model` must outlive this.
  explicit SkinnyLayers(const DeviceModel& model);

  void embed(const std::int32_t* tokens, int rows, cudaStream_t stream);
  /// What embed() writes.
  [[nodiscard]] ops::cuda::ResidualStream residual() const;
  /// The layer's q, k and v [rows, qkv_width], their bias left out: who takes them adds it.
  void project(int layer, float* qkv, int rows, cudaStream_t stream);
  /// The layer behind its attention [rows, query_width].
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream);
  /// Row i becomes row indices[i], i < rows, here; those of `attended` are returned. hidden()
  /// moves, and only finish_layer() may follow.
  const bf16* keep_rows(const std::int32_t* indices, int rows, const bf16* attended,
                        cudaStream_t stream);
  /// What the head takes behind the last layer; it is there (LargeBatchLayers has to make it).
  [[nodiscard]] ops::cuda::SkinnyInput finish(int rows, cudaStream_t stream) const;

  /// The same as layers, for those who run several in one kernel.
  [[nodiscard]] ops::cuda::SkinnyGemm projection(int layer, float* qkv) const;
  [[nodiscard]] std::array<ops::cuda::SkinnyGemm, 3> behind_attention(int layer,
                                                                      const bf16* attended) const;
  [[nodiscard]] ops::cuda::SkinnyInput normed() const;
  /// Runs such layers, each of which takes what the one before it makes.
  void run(std::span<const ops::cuda::SkinnyGemm> layers, int rows, cudaStream_t stream) const;
  [[nodiscard]] const ops::cuda::SkinnyScratch& scratch() const { return scratch_; }

  /// [rows, hidden]
  [[nodiscard]] const float* hidden() const { return hidden_.data(); }

 private:
  [[nodiscard]] ops::cuda::ResidualStream residual(const FloatBuffer& next_norm) const;

  const DeviceModel& model_;
  ops::cuda::SkinnyScratch scratch_;
  winnow::cuda::DeviceBuffer<float> hidden_;         // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> normed_;          // [rows, hidden], unscaled
  winnow::cuda::DeviceBuffer<float> square_sums_;    // [parts, rows]
  winnow::cuda::DeviceBuffer<bf16> activated_;       // [rows, intermediate]
  winnow::cuda::DeviceBuffer<float> kept_hidden_;    // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> kept_attention_;  // [rows, query_width]
};

}  // namespace winnow::model::cuda
