#include <algorithm>

#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "train/layer.h"
#include "train/layer_parts.h"

namespace winnow::train {
namespace {

using detail::decides;
using ops::Matrix;

// One layer's backward pass, from the output towards the input.
class LayerBackward {
 public:
  LayerBackward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                Matrix<const float> input, const LayerActivations& activations,
                const LayerGradients& gradients)
      : context_(context),
        workspace_(*context.workspace),
        pass_(pass),
        config_(*pass.config),
        w_(weights),
        input_(input),
        a_(activations),
        g_(gradients) {}

  // Turns the gradient of the layer's output into that of a_.middle.
  void mlp(Matrix<float> gradient) {
    const ops::Workspace::Scope scope(workspace_);
    const auto product = like(a_.gate);
    std::copy_n(a_.gate.data, a_.gate.rows * a_.gate.cols, product.data);
    ops::silu_multiply(product, a_.up);
    const auto dgate = zeros_like(a_.gate);
    const auto dup = like(a_.up);
    backward(w_.down, {dgate, g_.down, g_.down_bias}, gradient, product);
    ops::silu_multiply_backward(dgate, dup, dgate, a_.gate, a_.up);
    const auto dnormed = zeros_like(a_.mlp_normed);
    backward(w_.gate, {dnormed, g_.gate, g_.gate_bias}, dgate, a_.mlp_normed);
    backward(w_.up, {dnormed, g_.up, g_.up_bias}, dup, a_.mlp_normed);
    ops::rms_norm_backward(workspace_, gradient, g_.mlp_norm, dnormed, a_.middle, w_.mlp_norm,
                           config_.norm_eps);
  }

  // Turns the gradient of a_.middle into that of the layer's input.
  void attention(Matrix<float> gradient, const DecisionLoss& loss) {
    const ops::Workspace::Scope scope(workspace_);
    const auto dattended = zeros_like(a_.attended);
    backward(w_.output, {dattended, g_.output, g_.output_bias}, gradient, a_.attended);
    const auto dqueries = zeros_like(a_.queries);
    const auto dkeys = zeros_like(a_.keys);
    const auto dvalues = zeros_like(a_.values);
    const auto dbias = decides(pass_) ? zeros_like(a_.key_bias) : Matrix<float>();
    ops::training_attention_backward(workspace_, detail::attention_of(pass_, a_), a_.attended,
                                     a_.normalizers, dattended, {dqueries, dkeys, dvalues, dbias});
    if (config_.dms && config_.dms->rezero_after_rope) {
      detail::scale_channels(pass_, dqueries, detail::channel_factor(pass_));
    }
    ops::rope_backward(dqueries, config_.head_dim, *pass_.angles);
    ops::rope_backward(dkeys, config_.head_dim, *pass_.angles);
    if (decides(pass_)) {
      decisions(loss, dbias, dqueries, gradient);
    }
    projections(dqueries, dkeys, dvalues, gradient);
  }

 private:
  void backward(const ops::Weight& weight, const ops::LinearGradients& gradients,
                Matrix<const float> dout, Matrix<const float> x) {
    ops::linear_backward(context_, gradients, dout, x, weight);
  }
  [[nodiscard]] Matrix<float> like(Matrix<const float> x) const {
    return detail::take_matrix(workspace_, x.rows, x.cols);
  }
  [[nodiscard]] Matrix<float> zeros_like(Matrix<const float> x) const {
    const auto result = like(x);
    std::fill_n(result.data, x.rows * x.cols, 0.0F);
    return result;
  }

  // From the bias of keys to what the decisions were read from: a borrowed channel's gradient in
  // dqueries, or through an adapter to the layer's input.
  void decisions(const DecisionLoss& loss, Matrix<const float> dkey_bias, Matrix<float> dqueries,
                 Matrix<float> gradient) {
    const ops::Workspace::Scope scope(workspace_);
    const DmsConfig& dms = *config_.dms;
    const auto dbias = like(a_.logits);
    align_to_keys_backward(dms.shift, pass_.first_key, dbias, dkey_bias);
    const auto dlogits = zeros_like(a_.logits);
    take_decisions_backward(pass_.decisions, loss, dlogits, dbias, a_.noisy, a_.logits);
    for (std::size_t t = 0; t < dlogits.rows; ++t) {
      for (float& x : dlogits.row(t)) {
        x *= dms.scale;
      }
    }
    if (dms.source == DmsConfig::Source::adapter) {
      return adapter(dlogits, gradient);
    }
    // Attention saw 0 there, so this is all the gradient that the channel has.
    for (std::size_t t = 0; t < dqueries.rows; ++t) {
      for (std::size_t h = 0; h < static_cast<std::size_t>(config_.kv_heads); ++h) {
        dqueries.row(t)[borrowed_column(config_, h)] = h < dlogits.cols ? dlogits.row(t)[h] : 0.0F;
      }
    }
  }

  // The rows of a decision gradient that count.
  [[nodiscard]] ops::LinearGradients decision_gradients(Matrix<float> dx) const {
    const std::size_t count = decision_count(*config_.dms, config_.kv_heads);
    return {dx, g_.decision.data == nullptr ? g_.decision : g_.decision.slice(0, count),
            g_.decision_bias.empty() ? g_.decision_bias : g_.decision_bias.first(count)};
  }

  void adapter(Matrix<const float> dlogits, Matrix<float> gradient) {
    const auto dnormed = zeros_like(a_.decision_normed);
    backward(detail::decision_weight(config_, w_), decision_gradients(dnormed), dlogits,
             a_.decision_normed);
    ops::rms_norm_backward(workspace_, gradient, g_.decision_norm, dnormed, input_,
                           w_.decision_norm, config_.norm_eps);
  }

  void projections(Matrix<float> dqueries, Matrix<float> dkeys, Matrix<const float> dvalues,
                   Matrix<float> gradient) {
    if (config_.qk_norm) {
      dqueries = through_head_norm(dqueries, a_.raw_queries, w_.query_norm, g_.query_norm);
      dkeys = through_head_norm(dkeys, a_.raw_keys, w_.key_norm, g_.key_norm);
    }
    const auto dnormed = zeros_like(a_.normed);
    if (detail::borrows(config_)) {
      channels(dqueries, dnormed);
    }
    backward(w_.query, {dnormed, g_.query, g_.query_bias}, dqueries, a_.normed);
    backward(w_.key, {dnormed, g_.key, g_.key_bias}, dkeys, a_.normed);
    backward(w_.value, {dnormed, g_.value, g_.value_bias}, dvalues, a_.normed);
    ops::rms_norm_backward(workspace_, gradient, g_.attention_norm, dnormed, input_,
                           w_.attention_norm, config_.norm_eps);
  }

  [[nodiscard]] Matrix<float> through_head_norm(Matrix<float> dout, Matrix<float> raw,
                                                std::span<const float> weight,
                                                std::span<float> dweight) {
    const auto draw = zeros_like(dout);
    const auto dim = static_cast<std::size_t>(config_.head_dim);
    ops::rms_norm_backward(workspace_, detail::by_head(draw, dim), dweight,
                           detail::by_head(dout, dim), detail::by_head(raw, dim), weight,
                           config_.norm_eps);
    return draw;
  }

  // The borrowed channel was the model's own, faded, or the decision's rows.
  void channels(Matrix<float> dqueries, Matrix<float> dnormed) {
    if (decides(pass_)) {
      const auto drows = like(a_.logits);
      for (std::size_t t = 0; t < dqueries.rows; ++t) {
        for (std::size_t h = 0; h < drows.cols; ++h) {
          drows.row(t)[h] = dqueries.row(t)[borrowed_column(config_, h)];
        }
      }
      backward(detail::decision_weight(config_, w_), decision_gradients(dnormed), drows, a_.normed);
    }
    detail::scale_channels(pass_, dqueries, detail::channel_factor(pass_));
  }

  ops::Context& context_;
  ops::Workspace& workspace_;
  const LayerPass& pass_;
  const ModelConfig& config_;
  const LayerWeights& w_;
  Matrix<const float> input_;
  const LayerActivations& a_;
  const LayerGradients& g_;
};

}  // namespace

void layer_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    Matrix<const float> input, const LayerActivations& activations,
                    const DecisionLoss& loss, const LayerGradients& gradients,
                    Matrix<float> gradient) {
  LayerBackward backward(context, pass, weights, input, activations, gradients);
  backward.mlp(gradient);
  backward.attention(gradient, loss);
}

}  // namespace winnow::train
