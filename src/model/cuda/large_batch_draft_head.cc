// The general path's inputs of a head that drafts (DraftHeadSpec).
#include "base/cuda/device.h"
#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"

namespace winnow::model::cuda {
namespace {

// Half `half` of each of `to`'s rows = the row of `from` [rows, width].
void put_half(bf16* to, int half, const bf16* from, int rows, int width, cudaStream_t stream) {
  const std::size_t row_bytes = static_cast<std::size_t>(width) * sizeof(bf16);
  winnow::cuda::check(
      cudaMemcpy2DAsync(to + static_cast<std::ptrdiff_t>(half) * width, 2 * row_bytes, from,
                        row_bytes, row_bytes, static_cast<std::size_t>(rows),
                        cudaMemcpyDeviceToDevice, stream),
      "join a head's inputs");
}

}  // namespace

void LargeBatchLayers::reserve_draft_head(int rows) {
  if (const auto& head = model_.spec().draft_head) {
    const auto count = static_cast<std::size_t>(rows);
    inputs_.ensure(count * static_cast<std::size_t>(head->fused(model_.hidden())));
    joined_.ensure(joins_inputs() ? 2 * count * static_cast<std::size_t>(model_.hidden()) : 0);
  }
}

void LargeBatchLayers::begin_head(int rows, cudaStream_t stream) {
  joins_inputs() ? begin_eagle(rows, stream) : begin_mtp(rows, stream);
}

// The stream is what the head takes beside tokens; attention takes both, normed, side by side.
void LargeBatchLayers::begin_eagle(int rows, cudaStream_t stream) {
  const NormSpec& spec = model_.spec().layer(0).norm;
  const FloatBuffer& weight = model_.layer(0).attention_norm;
  norm(spec, model_.weights().draft_head.embedding_norm, {}, rows, stream);
  put_half(joined_.data(), 0, normed_.data(), rows, model_.hidden(), stream);
  fuse_states(rows, stream);
  norm(spec, weight, {}, rows, stream);
  put_half(joined_.data(), 1, normed_.data(), rows, model_.hidden(), stream);
  if (model_.spec().draft_head->norms_residual) {
    ops::cuda::rms_norm(hidden_.data(), hidden_.data(), rows, model_.hidden(),
                        {.weight = weight.data()}, spec.eps, stream);
  }
}

// The residual stream = the model's states, fused, or the head's own.
void LargeBatchLayers::fuse_states(int rows, cudaStream_t stream) {
  if (states_are_own_) {
    winnow::cuda::check(cudaMemcpyAsync(hidden_.data(), states_, size_of(rows) * sizeof(float),
                                        cudaMemcpyDeviceToDevice, stream),
                        "take a head's own states");
    return;
  }
  const DeviceDraftHeadWeights& head = model_.weights().draft_head;
  const int width = model_.spec().draft_head->inputs();
  if (head.input_norm.size() > 0) {
    ops::cuda::rms_norm(inputs_.data(), states_, rows, width, {.weight = head.input_norm.data()},
                        model_.spec().layer(0).norm.eps, stream);
  } else {
    ops::cuda::round(inputs_.data(), states_,
                     static_cast<std::size_t>(rows) * static_cast<std::size_t>(width), stream);
  }
  products_.multiply(hidden_.data(), inputs_.data(), head.fusion.view(), padded(rows), stream);
}

// Embedding and stream, the model's or the head's own, are fused.
void LargeBatchLayers::begin_mtp(int rows, cudaStream_t stream) {
  const DeviceDraftHeadWeights& head = model_.weights().draft_head;
  const NormSpec& spec = model_.spec().final_norm;
  const int first = model_.spec().draft_head->stream_first ? 1 : 0;  // the embedding's half
  norm(spec, head.embedding_norm, {}, rows, stream);
  put_half(inputs_.data(), first, normed_.data(), rows, model_.hidden(), stream);
  ops::cuda::rms_norm(normed_.data(), states_, rows, model_.hidden(),
                      {.weight = head.input_norm.data()}, spec.eps, stream);
  put_half(inputs_.data(), 1 - first, normed_.data(), rows, model_.hidden(), stream);
  products_.multiply(hidden_.data(), inputs_.data(), head.fusion.view(), padded(rows), stream);
}

}  // namespace winnow::model::cuda
