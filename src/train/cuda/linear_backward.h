// Backward of linear layers, for all tokens.
#pragma once

#include "ops/cuda/bias.h"
#include "train/cuda/layer.h"

namespace winnow::train::cuda::detail {

/// Where a linear layer's gradients go; null: not computed.
struct LinearGradients {
  float* weight = nullptr;
  float* bias = nullptr;
};

/// dx [T, inputs] = dy [T, outputs] weight, or with `add` dx += it. Rows of dy are `stride`
/// elements apart; 0: outputs.
inline void input_gradient(const DevicePass& pass, bf16* dx, const bf16* dy, const bf16* weight,
                           int outputs, int inputs, bool add = false, int stride = 0) {
  pass.linear->input_gradient(dx, dy, weight, pass.tokens, outputs, inputs, add, pass.stream,
                              stride);
}

inline void weight_gradient(const DevicePass& pass, const LinearGradients& gradients,
                            const bf16* dy, const bf16* x, int outputs, int inputs,
                            int stride = 0) {
  if (gradients.weight != nullptr) {
    pass.linear->weight_gradient(gradients.weight, dy, x, pass.tokens, outputs, inputs, pass.stream,
                                 stride);
  }
  if (gradients.bias != nullptr) {
    ops::cuda::add_column_sums(gradients.bias, dy, pass.tokens, outputs,
                               stride == 0 ? outputs : stride, pass.stream);
  }
}

}  // namespace winnow::train::cuda::detail
