#include "ops/experts.h"

#include <array>
#include <cassert>
#include <cmath>
#include <vector>

#include "ops/activation.h"
#include "ops/cpu/experts/expert_groups.h"
#include "ops/linear.h"

namespace winnow::ops {
namespace {

using cpu::ExpertGroups;
using cpu::take_matrix;

// gate x and up x of one expert's pairs.
void project(Context& context, const MlpWeights& expert, Matrix<float> gate, Matrix<float> up,
             Matrix<const float> x) {
  const std::array<LinearTarget, 2> targets{
      {{gate, expert.gate, expert.gate_bias}, {up, expert.up, expert.up_bias}}};
  linear(context, targets, x);
}

// The same for all experts of a single token, in one call: they share their input.
void project_one_token(Context& context, const ExpertGroups& groups, const ExpertsWeights& weights,
                       const ExpertsActivations& a, Matrix<const float> x) {
  std::vector<LinearTarget> targets;
  cpu::for_each_group(groups, [&](std::size_t e, std::size_t begin, std::size_t end) {
    const MlpWeights& expert = weights.experts[e];
    targets.push_back({a.gate.slice(begin, end), expert.gate, expert.gate_bias});
    targets.push_back({a.up.slice(begin, end), expert.up, expert.up_bias});
  });
  linear(context, targets, x);
}

void project_all(Context& context, const ExpertGroups& groups, const ExpertsWeights& weights,
                 const ExpertsActivations& a, Matrix<const float> x, const float* input_weights) {
  if (x.rows == 1 && input_weights == nullptr) {
    return project_one_token(context, groups, weights, a, x);
  }
  cpu::for_each_group(groups, [&](std::size_t e, std::size_t begin, std::size_t end) {
    const Workspace::Scope scope(*context.workspace);
    project(context, weights.experts[e], a.gate.slice(begin, end), a.up.slice(begin, end),
            cpu::gather(context, groups, begin, end, x, input_weights));
  });
}

void add_outputs(Context& context, const ExpertGroups& groups, const ExpertsWeights& weights,
                 const ExpertsActivations& a, Matrix<float> out, const float* output_weights) {
  cpu::for_each_group(groups, [&](std::size_t e, std::size_t begin, std::size_t end) {
    const Workspace::Scope scope(*context.workspace);
    const MlpWeights& expert = weights.experts[e];
    const Matrix<float> product = take_matrix(context, end - begin, a.gate.cols);
    std::copy_n(a.gate.row(begin).data(), product.rows * product.cols, product.data);
    activate_multiply(expert.activation, product, a.up.slice(begin, end));
    const Matrix<float> rows = take_matrix(context, end - begin, out.cols);
    linear(context, rows, product, *expert.down, expert.down_bias);
    cpu::scatter_add(groups, begin, out, rows, output_weights);
  });
}

}  // namespace

void experts_forward(Context& context, const Router& router, Matrix<float> out,
                     Matrix<const float> x, const ExpertsWeights& weights,
                     const ExpertsActivations& activations) {
  assert(activations.gate.stride == activations.gate.cols);
  if (x.rows == 0) {
    return;
  }
  const Workspace::Scope scope(*context.workspace);
  linear(context, activations.logits,
         weights.router_input.data != nullptr ? weights.router_input : x, *weights.router,
         weights.router_bias);
  const Routes routes = cpu::take_routes(context, router, x.rows);
  route(router, routes, activations.logits);
  const ExpertGroups groups = cpu::group_by_expert(router, routes.experts);
  const float* of_pairs = routes.weights.data;
  project_all(context, groups, weights, activations, x, weights.scales_input ? of_pairs : nullptr);
  if (out.data != nullptr) {
    add_outputs(context, groups, weights, activations, out,
                weights.scales_input ? nullptr : of_pairs);
  }
}

void add_experts(Context& context, const Router& router, Matrix<float> out, Matrix<const float> x,
                 const ExpertsWeights& weights) {
  const Workspace::Scope scope(*context.workspace);
  const std::size_t pairs = x.rows * static_cast<std::size_t>(router.active);
  const auto inner = static_cast<std::size_t>(weights.experts.front().gate->rows);
  experts_forward(context, router, out, x, weights,
                  {.logits = take_matrix(context, x.rows, static_cast<std::size_t>(router.count)),
                   .gate = take_matrix(context, pairs, inner),
                   .up = take_matrix(context, pairs, inner)});
}

void gate_rows(Matrix<float> x, Matrix<const float> logits) {
  parallel_ranges(x.rows, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t t = begin; t < end; ++t) {
      const float gate = 1.0F / (1.0F + std::exp(-logits.row(t)[0]));
      for (float& value : x.row(t)) {
        value *= gate;
      }
    }
  });
}

}  // namespace winnow::ops
