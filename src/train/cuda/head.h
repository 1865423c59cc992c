// The final norm, the head and the loss on a device, forward and backward in one: train/head.h in
// bf16, logits in fp32.
#pragma once

#include "ops/cuda/general/elementwise.h"
#include "ops/loss.h"
#include "train/cuda/layer.h"
#include "train/cuda_memory/head.h"

namespace winnow::train::cuda {

/// The targets of the predictions, in device memory.
struct DeviceTargets {
  const std::int32_t* tokens = nullptr;  // [T]: the language-model loss
  const float* weights = nullptr;        // [T]
};

class DeviceHead {
 public:
  DeviceHead(const model::ModelSpec& spec, const HeadSizes& sizes);

  /// Computes the teacher's predictions from `hidden` [T, hidden], which may change afterwards.
  void take_teacher(const DevicePass& pass, const DeviceWeights& teacher, const float* hidden);

  /// *loss += the sum over tokens; `gradient` becomes that of `hidden`; final norm and head add
  /// their gradients. Logits exist for one chunk of tokens at a time.
  void language_model_loss(const DevicePass& pass, const DeviceWeights& weights,
                           const float* hidden, const DeviceTargets& targets,
                           const DeviceGradients& gradients, const StreamGradient& gradient,
                           double* loss);
  /// The same for the divergence from the predictions of take_teacher().
  void distillation_loss(const DevicePass& pass, const DeviceWeights& weights, const float* hidden,
                         const DeviceTargets& targets, const DeviceWeights& teacher,
                         ops::Divergence divergence, const DeviceGradients& gradients,
                         const StreamGradient& gradient, double* loss);

 private:
  template <class LossOf>
  void chunked_loss(const DevicePass& pass, const DeviceWeights& weights, const float* hidden,
                    const DeviceGradients& gradients, const StreamGradient& gradient,
                    const LossOf& loss_of);
  void multiply(const DevicePass& pass, float* logits, const bf16* normed,
                const DeviceWeights& weights, int rows) const;
  void transform_logits(const DevicePass& pass, float* logits, int rows) const;
  void transform_gradient(const DevicePass& pass, int rows) const;
  [[nodiscard]] ops::cuda::LogitRows rows_of(int rows) const;
  [[nodiscard]] std::size_t offset_of(int token) const;  // in [T, hidden]
  [[nodiscard]] std::size_t elements_of(int rows) const;

  model::ModelSpec spec_;
  int stride_;                               // stride between rows of logits
  int chunk_;                                // tokens
  winnow::cuda::DeviceBuffer<bf16> normed_;  // [T, hidden]
  winnow::cuda::DeviceBuffer<bf16> dnormed_;
  winnow::cuda::DeviceBuffer<bf16> teacher_normed_;
  winnow::cuda::DeviceBuffer<float> logits_;  // [chunk, stride]
  winnow::cuda::DeviceBuffer<float> teacher_logits_;
  winnow::cuda::DeviceBuffer<bf16> dlogits_;
};

}  // namespace winnow::train::cuda
