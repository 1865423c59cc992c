// How attention computes logits from products, for kernels that support all variants.
#pragma once

namespace winnow::ops::cuda {

/// The logit of a query and a key is
///   x = scale * query . key or, with a cap, soft_cap * tanh(x / soft_cap).
/// A query head's sink is one more logit without a key: it is added to the softmax's denominator
/// and adds nothing to the output.
struct AttentionLogits {
  float scale = 1.0F;
  float soft_cap = 0.0F;         // 0: none
  const float* sinks = nullptr;  // [query heads] in device memory, or null
};

}  // namespace winnow::ops::cuda
