#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/activation.h"
#include "ops/cpu/experts/expert_groups.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace winnow::ops {
namespace {

using cpu::ExpertGroups;
using cpu::take_matrix;

Matrix<float> take_zeros(Context& context, std::size_t rows, std::size_t cols) {
  const Matrix<float> result = take_matrix(context, rows, cols);
  std::fill_n(result.data, rows * cols, 0.0F);
  return result;
}

// Backward of one expert for its pairs.
class ExpertBackward {
 public:
  ExpertBackward(Context& context, const ExpertGroups& groups, const ExpertsWeights& weights,
                 const ExpertsActivations& activations, std::span<const float> of_pairs)
      : context_(context), groups_(groups), w_(weights), a_(activations), of_pairs_(of_pairs) {}

  /// weighted[pair] = the product of the pair's weight and its gradient; dx += .
  void run(std::size_t e, std::size_t begin, std::size_t end, const ExpertGradients& g,
           Matrix<const float> dout, Matrix<const float> x, Matrix<float> dx,
           std::span<float> weighted) const {
    const Workspace::Scope scope(*context_.workspace);
    const MlpWeights& expert = w_.experts[e];
    const float* input_weights = w_.scales_input ? of_pairs_.data() : nullptr;
    const float* output_weights = w_.scales_input ? nullptr : of_pairs_.data();
    const auto gate = a_.gate.slice(begin, end);
    const auto up = a_.up.slice(begin, end);
    const auto product = take_matrix(context_, gate.rows, gate.cols);
    std::copy_n(gate.data, gate.rows * gate.cols, product.data);
    activate_multiply(expert.activation, product, up);
    const auto drows = cpu::gather(context_, groups_, begin, end, dout, output_weights);
    const auto dproduct = take_zeros(context_, gate.rows, gate.cols);
    linear_backward(context_, {dproduct, g.down, g.down_bias}, drows, product, *expert.down);
    const auto products = context_.workspace->take<float>(gate.rows);
    if (!w_.scales_input) {
      row_products(products, dproduct, product);
      add_bias_products(products, drows, expert.down_bias);
    }
    const auto dup = take_matrix(context_, up.rows, up.cols);
    activate_multiply_backward(expert.activation, dproduct, dup, dproduct, gate, up);
    const auto rows = cpu::gather(context_, groups_, begin, end, x, input_weights);
    const auto dinput = take_zeros(context_, rows.rows, rows.cols);
    linear_backward(context_, {dinput, g.gate, g.gate_bias}, dproduct, rows, *expert.gate);
    linear_backward(context_, {dinput, g.up, g.up_bias}, dup, rows, *expert.up);
    if (w_.scales_input) {
      row_products(products, dinput, rows);
    }
    for (std::size_t i = 0; i < products.size(); ++i) {
      weighted[groups_.pairs[begin + i]] = products[i];
    }
    cpu::scatter_add(groups_, begin, dx, dinput, input_weights);
  }

 private:
  static void add_bias_products(std::span<float> products, Matrix<const float> drows,
                                const float* bias) {
    for (std::size_t i = 0; bias != nullptr && i < products.size(); ++i) {
      const auto row = drows.row(i);
      products[i] = std::inner_product(row.begin(), row.end(), bias, products[i]);
    }
  }

  Context& context_;
  const ExpertGroups& groups_;
  const ExpertsWeights& w_;
  const ExpertsActivations& a_;
  std::span<const float> of_pairs_;
};

}  // namespace

void experts_backward(Context& context, const Router& router, const ExpertsGradients& gradients,
                      Matrix<const float> dout, Matrix<const float> x,
                      const ExpertsWeights& weights, const ExpertsActivations& activations) {
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  const Routes routes = cpu::take_routes(context, router, x.rows);
  route(router, routes, activations.logits);
  const ExpertGroups groups = cpu::group_by_expert(router, routes.experts);
  const std::size_t pairs = groups.pairs.size();
  const auto weighted = take_matrix(context, x.rows, groups.active);
  const auto dx = gradients.x.data != nullptr ? gradients.x : take_zeros(context, x.rows, x.cols);
  const ExpertBackward backward(context, groups, weights, activations,
                                {routes.weights.data, pairs});
  cpu::for_each_group(groups, [&](std::size_t e, std::size_t begin, std::size_t end) {
    backward.run(e, begin, end, gradients.experts[e], dout, x, dx, {weighted.data, pairs});
  });
  const auto dlogits = take_matrix(context, x.rows, activations.logits.cols);
  route_backward(router, dlogits, routes, weighted, activations.logits);
  const bool has_input = weights.router_input.data != nullptr;
  linear_backward(
      context, {has_input ? gradients.router_input : dx, gradients.router, gradients.router_bias},
      dlogits, has_input ? weights.router_input : x, *weights.router);
}

void gate_rows_backward(Matrix<float> dlogits, std::span<const float> products,
                        Matrix<const float> logits) {
  for (std::size_t t = 0; t < products.size(); ++t) {
    const float gate = 1.0F / (1.0F + std::exp(-logits.row(t)[0]));
    dlogits.row(t)[0] = products[t] * (1.0F - gate);
  }
}

void row_products(std::span<float> products, Matrix<const float> x, Matrix<const float> y) {
  parallel_ranges(products.size(), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t t = begin; t < end; ++t) {
      const auto row = x.row(t);
      products[t] = std::inner_product(row.begin(), row.end(), y.row(t).begin(), 0.0F);
    }
  });
}

}  // namespace winnow::ops
