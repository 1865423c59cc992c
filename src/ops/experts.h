// A mixture of experts: several feed-forward networks, of which each token uses a few.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/mlp.h"
#include "ops/router.h"

namespace winnow::ops {

struct ExpertsWeights {
  const Weight* router = nullptr;         // [E, K]
  const float* router_bias = nullptr;     // [E] or null
  std::span<const MlpWeights> experts;    // [E], all with gates and of one shape [I, K], [K, I]
  bool scales_input = false;              // weights multiply the experts' inputs, not their outputs
  Matrix<const float> router_input = {};  // [T, K]; empty: the router takes x
};

/// The part of the forward pass that the backward pass needs. Pairs of a token and one of its
/// experts are ordered by expert, then by token.
struct ExpertsActivations {
  Matrix<float> logits;  // [T, E]
  Matrix<float> gate;    // [T * active, I], before the activation
  Matrix<float> up;      // [T * active, I]
};

/// out [T, K] += the sum over a token's experts of weight * expert(x), x [T, K]. Only the weights
/// of experts that some token uses are read. With an empty `out`, only activations are computed.
void experts_forward(Context& context, const Router& router, Matrix<float> out,
                     Matrix<const float> x, const ExpertsWeights& weights,
                     const ExpertsActivations& activations);

/// The same for callers that need no activations.
void add_experts(Context& context, const Router& router, Matrix<float> out, Matrix<const float> x,
                 const ExpertsWeights& weights);

/// The gradients that experts_backward() adds to; an empty one is not computed.
struct ExpertGradients {
  Matrix<float> gate;  // [I, K]
  Matrix<float> up;    // [I, K]
  Matrix<float> down;  // [K, I]
  std::span<float> gate_bias;
  std::span<float> up_bias;
  std::span<float> down_bias;
};
struct ExpertsGradients {
  Matrix<float> x;             // [T, K]
  Matrix<float> router_input;  // [T, K], if the router has its own input
  Matrix<float> router;        // [E, K]
  std::span<float> router_bias;
  std::span<const ExpertGradients> experts;  // [E]
};

/// Backward of experts_forward(), given the gradient of `out`. Has the same bits on any number of
/// threads.
void experts_backward(Context& context, const Router& router, const ExpertsGradients& gradients,
                      Matrix<const float> dout, Matrix<const float> x,
                      const ExpertsWeights& weights, const ExpertsActivations& activations);

/// x.row(t) *= sigmoid(logits.row(t)[0]): the gate of a shared expert, which every token uses.
void gate_rows(Matrix<float> x, Matrix<const float> logits);

/// Backward of gate_rows(): dlogits, given each row's dot product of the gated result and its
/// gradient.
void gate_rows_backward(Matrix<float> dlogits, std::span<const float> products,
                        Matrix<const float> logits);

/// products[t] = x.row(t) . y.row(t)
void row_products(std::span<float> products, Matrix<const float> x, Matrix<const float> y);

}  // namespace winnow::ops
