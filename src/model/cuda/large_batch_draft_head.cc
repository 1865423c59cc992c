// The general path's inputs of a head that drafts (DraftHeadSpec).
#include "base/cuda/device.h"
#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_draft_head(int rows) {
  if (const auto& head = model_.spec().draft_head) {
    const auto count = static_cast<std::size_t>(rows);
    inputs_.ensure(count * static_cast<std::size_t>(head->inputs()));
    joined_.ensure(count * static_cast<std::size_t>(model_.spec().attention_inputs()));
  }
}

void LargeBatchLayers::begin_head(int rows, cudaStream_t stream) {
  const FloatBuffer& norm_weight = model_.layer(0).attention_norm;
  join_normed(0, model_.weights().draft_head.embedding_norm, rows, stream);
  fuse_states(rows, stream);
  join_normed(1, norm_weight, rows, stream);
  if (model_.spec().draft_head->norms_residual) {
    ops::cuda::rms_norm(hidden_.data(), hidden_.data(), rows, model_.hidden(),
                        {.weight = norm_weight.data()}, model_.spec().layer(0).norm.eps, stream);
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

void LargeBatchLayers::join_normed(int half, const FloatBuffer& weight, int rows,
                                   cudaStream_t stream) {
  norm(model_.spec().layer(0).norm, weight, {}, rows, stream);
  const auto width = static_cast<std::size_t>(model_.hidden());
  winnow::cuda::check(
      cudaMemcpy2DAsync(joined_.data() + static_cast<std::size_t>(half) * width,
                        2 * width * sizeof(bf16), normed_.data(), width * sizeof(bf16),
                        width * sizeof(bf16), static_cast<std::size_t>(rows),
                        cudaMemcpyDeviceToDevice, stream),
      "join a head's inputs");
}

}  // namespace winnow::model::cuda
