#include "train/mixer_output.h"

#include <algorithm>

#include "model/mixer_parts.h"
#include "ops/activation.h"
#include "ops/norm.h"
#include "train/latent_attention.h"
#include "train/layer_parts.h"

namespace winnow::train::detail {

ops::Matrix<const float> mixer_output(ops::Context& context, const LayerPass& pass,
                                      const LayerWeights& weights, const LayerActivations& a) {
  ops::Workspace& workspace = *context.workspace;
  const model::AttentionSpec* attention = pass.layer_spec().attention();
  if (attention != nullptr && attention->latent) {
    const auto values = take_matrix(workspace, a.attended.rows,
                                    static_cast<std::size_t>(attention->output_width()));
    expand_latents(context, pass, weights, a, values);
    return values;
  }
  if (attention != nullptr && !attention->output_gate) {
    return a.attended;
  }
  const ops::Matrix<float>& raw = attention != nullptr ? a.attended : a.recalled;
  const auto out = take_matrix(workspace, raw.rows, raw.cols);
  if (attention != nullptr) {
    std::copy_n(raw.data, raw.rows * raw.cols, out.data);
    ops::sigmoid_multiply(out, a.output_gates);
    return out;
  }
  const model::RecurrentSpec& recurrent = *pass.layer_spec().recurrent();
  const float eps = pass.layer_spec().norm.eps;
  if (recurrent.kind == model::RecurrentSpec::Kind::short_conv) {
    copy(raw, out);
    ops::multiply(out, a.recurrent_gates);
    return out;
  }
  copy(a.recurrent_gates, out);
  if (recurrent.kind == model::RecurrentSpec::Kind::state_space) {
    ops::silu_multiply(out, raw);
    model::norm_groups(recurrent.norm_groups, out, weights.recurrent.norm, eps);
    return out;
  }
  const ops::Workspace::Scope scope(workspace);
  const auto normed = take_matrix(workspace, raw.rows, raw.cols);
  const std::size_t head_dim = weights.recurrent.norm.size();
  ops::rms_norm(by_head(normed, head_dim), by_head(raw, head_dim), weights.recurrent.norm, eps);
  ops::silu_multiply(out, normed);
  return out;
}

}  // namespace winnow::train::detail
