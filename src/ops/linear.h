// Matrix products of activations with weights.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops {

/// One product of linear(): out[m, n] = sum_k x[m, k] * weight[n, k] + bias[n].
struct LinearTarget {
  Matrix<float> out;            // [M, weight.rows]
  const Weight* weight;         // [weight.rows, K]
  const float* bias = nullptr;  // [weight.rows] or null
};

/// Computes every target from the same input x [M, K] in one call (q, k and v; gate and up).
/// With few rows our kernels stream the weights once at memory speed; with many rows oneDNN runs,
/// or our kernels if context.deterministic is set.
void linear(Context& context, std::span<const LinearTarget> targets, Matrix<const float> x);

inline void linear(Context& context, Matrix<float> out, Matrix<const float> x, const Weight& weight,
                   const float* bias = nullptr) {
  const LinearTarget target{out, &weight, bias};
  linear(context, std::span(&target, 1), x);
}

/// out += x weight^T + bias: a product that is added to the residual stream.
void add_linear(Context& context, Matrix<float> out, Matrix<const float> x, const Weight& weight,
                const float* bias = nullptr);

/// The gradients that linear_backward() adds to; an empty matrix or span is not computed.
struct LinearGradients {
  Matrix<float> x;        // [M, K]
  Matrix<float> weight;   // [N, K]
  std::span<float> bias;  // [N]
};

/// Backward of out = x weight^T + bias, given the gradient of out: x += dout weight, weight +=
/// dout^T x, bias += the sum of dout's rows. oneDNN computes the products, in float or from
/// operands rounded to bf16 (context.compute), with sums in float; same bits for any thread count.
void linear_backward(Context& context, const LinearGradients& gradients, Matrix<const float> dout,
                     Matrix<const float> x, const Weight& weight);

}  // namespace winnow::ops
