// The linear layers of a step or a prompt and the operations between them: everything except
// attention and its cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/error.h"
#include "kvcache/cuda/append/step.h"
#include "ops/cuda/linear/low_rank.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::model::cuda {

class OutputHead;

/// Where a layer's q, k and v [rows, qkv_width] may go: in 16 bits, in float, or in either (null:
/// there is no room).
struct QkvMemory {
  bf16* rounded = nullptr;
  float* exact = nullptr;
};

/// Sizes that batches are padded to by paths that pad: each has algorithms and a graph of its own,
/// which cost something when it first occurs.
constexpr int padded_rows(int rows) {
  const int step = rows <= 128 ? 16 : rows <= 512 ? 64 : 128;
  return (rows + step - 1) / step * step;
}

/// The residual stream of some tokens, a row each, on its way through a model. One implementation
/// per path (fast_paths.h). Calls of one object belong to one stream, and to one pass over the
/// layers after another (layer_walk.h).
class LinearPath {
 public:
  LinearPath() = default;
  virtual ~LinearPath() = default;
  LinearPath(const LinearPath&) = delete;
  LinearPath& operator=(const LinearPath&) = delete;

  /// Whether it computes padded_rows() of what it is asked for: all matrices that are passed in
  /// have room for them, and those behind the rows are worth nothing.
  [[nodiscard]] virtual bool pads() const = 0;
  [[nodiscard]] int padded(int rows) const { return pads() ? padded_rows(rows) : rows; }
  /// Whether it leaves q, k and v in 16 bits where there is room for both.
  [[nodiscard]] virtual bool rounds_qkv() const { return false; }

  /// Makes room for so many rows; what was stored may be lost.
  virtual void reserve(int /*rows*/) {}

  /// The tokens of the next pass over the layers, in memory that the device reads: paths take them
  /// that know embeddings for each layer.
  virtual void take_tokens(const std::int32_t* /*tokens*/) {}
  /// The adapters of the rows from now on; of a path that takes calls with adapters.
  virtual void adapt(const ops::cuda::LowRankRows& rows) {
    require(rows.products == nullptr, "these linear layers take no adapters");
  }
  /// Where the embedded tokens go.
  [[nodiscard]] virtual ops::cuda::ResidualStream residual() const = 0;
  /// The layer's q, k and v without bias; the consumer adds it. What a recurrent mixer takes, and
  /// output gates, the path keeps. `overlap`: a kernel before it may still run (SkinnyLaunch).
  virtual kvcache::cuda::QkvRows project(int layer, const QkvMemory& to, int rows, bool overlap,
                                         cudaStream_t stream) = 0;
  /// What the recurrent mixer of the layer just projected gives, [rows, mixer_width]; the states of
  /// `sequences`, whose rows these are, go on.
  virtual void recall(int /*layer*/, const ops::cuda::RecurrentRows& /*sequences*/, bf16* /*out*/,
                      int /*rows*/, cudaStream_t /*stream*/) {
    fail("these linear layers take no recurrent mixers");
  }
  /// Multiplies attention [rows, query_width] by the output gates of the layer just projected, if
  /// it has them.
  virtual void gate(int /*layer*/, bf16* /*attended*/, int /*rows*/, cudaStream_t /*stream*/) {}
  /// The layer behind its mixer [rows, mixer_width].
  virtual void finish_layer(int layer, const bf16* attended, int rows, cudaStream_t stream) = 0;
  /// Both: from the mixer of a layer to what the next one's takes.
  virtual kvcache::cuda::QkvRows next_layer(int layer, const bf16* attended, const QkvMemory& to,
                                            int rows, cudaStream_t stream) {
    finish_layer(layer, attended, rows, stream);
    return project(layer + 1, to, rows, true, stream);
  }

  /// The end of a step: from the mixer of the last layer to `head`'s logits, or only to its
  /// most likely tokens where no logits are wanted and the path can do that. Returns whether there
  /// are logits.
  virtual bool finish_step(const bf16* attended, bool with_logits, const OutputHead& head, int rows,
                           cudaStream_t stream) = 0;

  /// The end of prompts. Row i becomes row indices[i], i < rows, here and in what is returned for
  /// `attended`; hidden() moves, and only finish_layer() may follow.
  virtual const bf16* keep_rows(const std::int32_t* /*indices*/, int /*rows*/, bf16* /*attended*/,
                                cudaStream_t /*stream*/) {
    fail("these linear layers take no prompts");
  }
  /// What the head takes behind the last layer.
  virtual ops::cuda::SkinnyInput finish(int /*rows*/, cudaStream_t /*stream*/) {
    fail("these linear layers take no prompts");
  }

  /// [rows, hidden]
  [[nodiscard]] virtual const float* hidden() const = 0;
};

}  // namespace winnow::model::cuda
