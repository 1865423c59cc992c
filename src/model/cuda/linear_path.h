// The linear layers of a step or a prompt and the operations between them: everything except
// attention and its cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "kvcache/cuda/append/step.h"
#include "ops/cuda/linear/low_rank.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::model::cuda {

class OutputHead;

/// Where a layer's q, k and v [rows, qkv_width] may be written: in 16 bits, in float, or in either
/// (null: no buffer).
struct QkvMemory {
  bf16* rounded = nullptr;
  float* exact = nullptr;
};

/// The sizes that paths with padding pad batches to. Each size has its own algorithms and graph,
/// which cost time when it first occurs.
constexpr int padded_rows(int rows) {
  const int step = rows <= 128 ? 16 : rows <= 512 ? 64 : 128;
  return (rows + step - 1) / step * step;
}

/// The linear layers of a model, applied to the residual stream of some tokens, a row each. There
/// is one implementation per path (fast_paths.h). The calls of one object belong to one stream, and
/// to one pass over the layers at a time (layer_walk.h).
class LinearPath {
 public:
  LinearPath() = default;
  virtual ~LinearPath() = default;
  LinearPath(const LinearPath&) = delete;
  LinearPath& operator=(const LinearPath&) = delete;

  /// Its name in docs/lab/internals.md.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Whether it computes padded_rows(rows) rows: all matrices that are passed must have room for
  /// them, and the values of the padding rows are undefined.
  [[nodiscard]] virtual bool pads() const = 0;
  [[nodiscard]] int padded(int rows) const { return pads() ? padded_rows(rows) : rows; }
  /// Whether it writes q, k and v in 16 bits if it may choose.
  [[nodiscard]] virtual bool rounds_qkv() const { return false; }

  /// Makes room for `rows` rows; stored values may be lost.
  virtual void reserve(int /*rows*/) {}

  /// Sets the tokens of the next pass over the layers, in memory that the device reads. Only paths
  /// with per-layer embeddings use them.
  virtual void take_tokens(const std::int32_t* /*tokens*/) {}
  /// Sets what a head that drafts takes in the next pass beside tokens, in device memory: the
  /// states [rows, inputs] of the model for which it drafts, or its `own` [rows, hidden].
  virtual void take_states(const float* /*states*/, bool /*own*/) {
    fail("these linear layers take no states of another model");
  }
  /// Sets the adapters of the rows from now on; only for paths that take calls with adapters.
  virtual void adapt(const ops::cuda::LowRankRows& rows) {
    require(rows.products == nullptr, "these linear layers take no adapters");
  }
  /// Where the embedded tokens are written.
  [[nodiscard]] virtual ops::cuda::ResidualStream residual() const = 0;
  /// Computes q, k and v without bias, which the consumer adds; keeps the inputs of recurrent
  /// mixers and output gates. `overlap`: the kernel before may still run (SkinnyLaunch).
  virtual kvcache::cuda::QkvRows project(int layer, const QkvMemory& to, int rows, bool overlap,
                                         cudaStream_t stream) = 0;
  /// Runs the recurrent mixer of the layer just projected; its output is [rows, mixer_width].
  /// Advances the states of `sequences`, to which the rows belong.
  virtual void recall(int /*layer*/, const ops::cuda::RecurrentRows& /*sequences*/, bf16* /*out*/,
                      int /*rows*/, cudaStream_t /*stream*/) {
    fail("these linear layers take no recurrent mixers");
  }
  /// Multiplies the attention output [rows, query_width] by the output gates of the layer just
  /// projected, if it has them.
  virtual void gate(int /*layer*/, bf16* /*attended*/, int /*rows*/, cudaStream_t /*stream*/) {}
  /// Runs the rest of the layer after its mixer's output [rows, mixer_width].
  virtual void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) = 0;
  /// finish_layer(), then project() for the next layer.
  virtual kvcache::cuda::QkvRows next_layer(int layer, const bf16* attended, const QkvMemory& to,
                                            int rows, cudaStream_t stream) {
    finish_layer(layer, attended, rows, stream);
    return project(layer + 1, to, rows, true, stream);
  }

  /// The end of a step: from the mixer's output in the last layer to `head`'s logits, or only to
  /// the most likely tokens if logits are not wanted and the path can do without. Returns whether
  /// logits were computed.
  virtual bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                           cudaStream_t stream) = 0;

  /// At the end of prompts. Row i becomes row indices[i], i < rows, in hidden() and in the returned
  /// copy of `attended`; hidden() moves. Only finish_layer() may follow, or where `ends` was asked
  /// for (LinearCall) finish().
  virtual const bf16* keep_rows(const std::int32_t* /*indices*/, int /*rows*/, bf16* /*attended*/,
                                cudaStream_t /*stream*/) {
    fail("these linear layers take no prompts");
  }
  /// The input of the head after the last layer.
  virtual ops::cuda::SkinnyInput finish(int /*rows*/, cudaStream_t /*stream*/) {
    fail("these linear layers take no prompts");
  }

  /// The residual stream [rows, hidden].
  [[nodiscard]] virtual const float* hidden() const = 0;
};

}  // namespace winnow::model::cuda
