// The linear layers of many rows and what lies between them, for prompts and large batches.
#pragma once

#include <cstdint>

#include "model/cuda/device_model.h"
#include "model/cuda/matrix_weights.h"
#include "ops/cuda/linear/linear.h"
#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::model::cuda {

/// The residual stream of many tokens on its way through a model: everything but attention. Calls
/// of one object belong to one stream.
class LargeBatchLayers {
 public:
  /// Both must outlive this. `search`: the linear layers of a new number of rows try algorithms on
  /// the first step's rows, which are then worthless.
  LargeBatchLayers(const DeviceModel& model, const MatrixWeights& matrices, bool search = false)
      : model_(model), matrices_(matrices) {
    linear_.search(search);
  }

  /// Rows that the linear layers of `rows` compute: finding an algorithm for a number of rows that
  /// is new takes longer than a short prompt, so there are some numbers only. All matrices that are
  /// passed in have room for them; those behind `rows` are worth nothing.
  static int padded(int rows);

  /// Makes room for so many rows; what was stored may be lost.
  void reserve(std::size_t rows);

  void embed(const std::int32_t* tokens, int rows, cudaStream_t stream);
  /// What embed() writes.
  [[nodiscard]] ops::cuda::ResidualStream residual() const;
  /// The layer's q, k and v [rows, qkv_width], their bias left out: who takes them adds it.
  void project(int layer, bf16* qkv, int rows, cudaStream_t stream);
  void project(int layer, float* qkv, int rows, cudaStream_t stream);
  /// The layer behind its attention [rows, query_width].
  void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream);
  /// Row i becomes row indices[i], i < rows, here and in `attended`, which is returned.
  const bf16* keep_rows(const std::int32_t* indices, int rows, bf16* attended, cudaStream_t stream);
  /// What the head takes behind the last layer: rows that are normed.
  ops::cuda::SkinnyInput finish(int rows, cudaStream_t stream);
  /// logits [rows, vocab] of what finish() has left.
  void logits(float* logits, int rows, cudaStream_t stream);

  /// [rows, hidden]
  [[nodiscard]] const float* hidden() const { return hidden_.data(); }

 private:
  void norm(const FloatBuffer& weight, int rows, cudaStream_t stream);
  void add(const bf16* x, const ops::cuda::DeviceWeight& weight, const FloatBuffer& bias, int rows,
           cudaStream_t stream);

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
