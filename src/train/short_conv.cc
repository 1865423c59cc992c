// out = c * conv(b * x), of projections b, c and x (LFM2).
#include <array>

#include "ops/activation.h"
#include "ops/linear.h"
#include "train/document_scan.h"
#include "train/layer_parts.h"
#include "train/recurrent_mixer.h"

namespace winnow::train::detail {
namespace {

using ops::Matrix;

Matrix<float> product(ops::Workspace& workspace, Matrix<const float> x, Matrix<const float> y) {
  const auto result = take_matrix(workspace, x.rows, x.cols);
  copy(x, result);
  ops::multiply(result, y);
  return result;
}

}  // namespace

void short_conv(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  const auto& w = weights.recurrent;
  const std::array<ops::LinearTarget, 3> targets{{{a.recurrent_input, &w.input},
                                                  {a.recurrent_input_gates, &w.input_gate},
                                                  {a.recurrent_gates, &w.gate}}};
  ops::linear(context, targets, a.normed);
  const auto gated = product(*context.workspace, a.recurrent_input, a.recurrent_input_gates);
  convolve(documents_of(pass.first_key), a.recalled, gated, w.taps, w.conv_bias);
}

void short_conv_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                         const LayerActivations& a, const LayerGradients& gradients,
                         Matrix<const float> dout, Matrix<float> dx) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto& w = weights.recurrent;
  const auto& g = gradients.recurrent;
  const auto gated = product(workspace, a.recurrent_input, a.recurrent_input_gates);
  const auto drecalled = product(workspace, dout, a.recurrent_gates);
  const auto dgated = take_zeros(workspace, gated.rows, gated.cols);
  convolve_backward(documents_of(pass.first_key), dgated, g.taps, drecalled, gated, w.taps);
  const auto backward = [&](const ops::Weight& weight, Matrix<float> dweight,
                            Matrix<const float> dprojected) {
    ops::linear_backward(context, {dx, dweight, {}}, dprojected, a.normed, weight);
  };
  backward(w.gate, g.gate, product(workspace, dout, a.recalled));
  backward(w.input, g.input, product(workspace, dgated, a.recurrent_input_gates));
  backward(w.input_gate, g.input_gate, product(workspace, dgated, a.recurrent_input));
}

}  // namespace winnow::train::detail
