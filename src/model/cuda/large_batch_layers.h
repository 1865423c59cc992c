// The linear layers of many rows and what lies between them, for prompts and large batches:
// cuBLASLt, with weights in rows of bf16.
#pragma once

#include <cstdint>
#include <memory>

#include "model/cuda/fast_paths.h"
#include "ops/cuda/linear/linear.h"

namespace winnow::model::cuda {

class LargeBatchLayers final : public LinearPath {
 public:
  static constexpr bool kPads = true;
  static bool takes(const DeviceModel& /*model*/, const LinearCall& call) {
    return !call.is_step || call.may_pad;
  }
  /// Steps, whose sizes come again and again, try algorithms on the first one's rows, which are
  /// then worthless.
  static std::unique_ptr<LinearPath> make(const DeviceModel& model, const MatrixWeights& matrices,
                                          const LinearCall& call);

  /// Both must outlive this. `search`: the linear layers of a new number of rows try algorithms.
  LargeBatchLayers(const DeviceModel& model, const MatrixWeights& matrices, bool search)
      : model_(model), matrices_(matrices) {
    linear_.search(search);
  }

  [[nodiscard]] bool pads() const override { return kPads; }
  [[nodiscard]] bool rounds_qkv() const override { return true; }
  void reserve(int rows) override;
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

 private:
  void norm(const FloatBuffer& weight, int rows, cudaStream_t stream);
  void add(const bf16* x, const ops::cuda::DeviceWeight& weight, const FloatBuffer& bias, int rows,
           cudaStream_t stream);
  /// logits [rows, vocab] of what finish() has left.
  void logits(float* logits, int rows, cudaStream_t stream);

  const DeviceModel& model_;
  const MatrixWeights& matrices_;
  ops::cuda::Linear linear_;
  winnow::cuda::DeviceBuffer<float> hidden_;       // [rows, hidden]
  winnow::cuda::DeviceBuffer<float> square_sums_;  // [rows] of the embeddings; not used
  winnow::cuda::DeviceBuffer<bf16> normed_;        // [rows, hidden]
  winnow::cuda::DeviceBuffer<bf16> gate_up_;       // [rows, 2 * intermediate]; also scratch
  winnow::cuda::DeviceBuffer<bf16> activated_;     // [rows, intermediate]
};

}  // namespace winnow::model::cuda
