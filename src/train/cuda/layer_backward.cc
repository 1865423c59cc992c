#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/training/training_norm.h"
#include "train/cuda/experts.h"
#include "train/cuda/feed_forward.h"
#include "train/cuda/layer.h"
#include "train/cuda/layer_embeddings.h"
#include "train/cuda/layer_parts.h"
#include "train/cuda/linear_backward.h"

namespace winnow::train::cuda {
namespace {

// The norm of an adapter's input.
model::NormSpec decision_norm(const model::ModelSpec& spec) {
  return {.kind = model::NormSpec::Kind::rms, .eps = spec.final_norm.eps};
}

// One layer's backward pass, from the output towards the input.
class LayerBackward {
 public:
  LayerBackward(const DevicePass& pass, const DeviceLayerWeights& weights, const float* input,
                const DeviceActivations& activations, const DeviceLayerGradients& gradients,
                const StreamGradient& gradient)
      : pass_(pass),
        spec_(*pass.spec),
        scratch_(*pass.scratch),
        w_(weights),
        input_(input),
        a_(activations),
        g_(gradients),
        gradient_(gradient) {}

  void run() {
    if (pass_.layer_spec().output_scale) {
      ops::cuda::scale_by(gradient_.exact, elements(), w_.output_scale, pass_.stream);
      ops::cuda::round(gradient_.rounded, gradient_.exact, elements(), pass_.stream);
    }
    if (spec_.layer_embeddings) {
      detail::layer_embedding_backward(pass_, w_, a_, g_, gradient_);
    }
    mlp();
    if (!pass_.layer_spec().parallel) {
      through_mlp_input(scratch_.dnormed, a_.middle);
      return mixer();
    }
    // The input of the feed-forward is the layer's input: attention comes first.
    copy_async(scratch_.dparallel, scratch_.dnormed, elements(), pass_.stream);
    mixer();
    through_mlp_input(scratch_.dparallel, input_);
  }

 private:
  using LinearGradients = detail::LinearGradients;

  // From the gradient of the layer's output to that of the feed-forward's input, in dnormed.
  void mlp() {
    const auto& experts = pass_.layer_spec().feed_forward.experts;
    const bool beside = experts && experts->beside;
    const bf16* dbranch = branch_gradient(a_.mlp_branch, w_.mlp_post_norm, g_.mlp_post_norm,
                                          beside ? scratch_.branch : nullptr);
    if (beside) {
      detail::experts_beside_backward(pass_, w_, a_, g_, scratch_.branch, gradient_.exact);
    } else if (experts) {
      detail::experts_backward(pass_, w_, a_, g_, dbranch);
    } else {
      detail::dense_backward(pass_, w_, a_, g_, dbranch, false);
    }
  }

  void through_mlp_input(const bf16* dinput, const float* x) {
    through_input(dinput, x, detail::mlp_norm_of<const float>(pass_, w_),
                  detail::mlp_norm_of<float>(pass_, g_));
  }

  // Converts the gradient of a_.middle to that of the layer's input.
  void mixer() {
    const int width = detail::mixer_width(pass_);
    const bf16* dbranch =
        branch_gradient(a_.attention_branch, w_.attention_post_norm, g_.attention_post_norm);
    input_gradient(scratch_.dattended, dbranch, w_.output, spec_.hidden, width);
    weight_gradient({g_.output, g_.output_bias}, dbranch, detail::mixer_output(pass_, w_, a_),
                    spec_.hidden, width);
    if (pass_.layer_spec().recurrent() == nullptr) {
      return attention();
    }
    detail::recall_backward(pass_, w_, a_, g_);
    through_attention_input();
  }

  void attention() {
    if (pass_.attention().output_gate) {
      ops::cuda::gate_attended_backward(detail::output_gates_of(pass_, w_, a_), scratch_.dattended,
                                        scratch_.projected, a_.attended, pass_.stream);
    }
    detail::prepare_attention(pass_);
    ops::cuda::training_attention_backward(
        detail::attention_of(pass_, w_, a_),
        detail::head_matrix<const bf16>(pass_, a_.attended, pass_.attention().heads),
        detail::column_matrix<const float>(pass_, a_.normalizers, pass_.attention().heads),
        detail::head_matrix<const bf16>(pass_, scratch_.dattended, pass_.attention().heads),
        attention_gradients(), scratch_.attention, pass_.stream);
    if (g_.sinks != nullptr) {
      ops::cuda::add_scaled(g_.sinks, scratch_.dsinks,
                            static_cast<std::size_t>(pass_.attention().heads), 1.0F, pass_.stream);
    }
    if (pass_.shared_gradients != nullptr) {
      gather_entry_gradients();
    }
    if (pass_.merges()) {
      ops::cuda::segment_average_backward(detail::average_of(pass_, a_), scratch_.dkeys,
                                          scratch_.dvalues,
                                          {.alphas = scratch_.dalphas,
                                           .omega_logits = scratch_.domega_read,
                                           .keys = scratch_.dsingle_keys,
                                           .values = scratch_.dsingle_values},
                                          scratch_.merging, pass_.stream);
      if (decides_per_layer(spec_)) {
        ops::cuda::share_first_head_backward(scratch_.domega_read, pass_.tokens,
                                             pass_.attention().kv_heads, pass_.stream);
      }
    }
    if (pass_.decides()) {
      decisions();
    }
    projections();
  }

  // If layers share entries, their gradients are summed; the layer that stores the entries runs its
  // backward last and takes the sums.
  void gather_entry_gradients() {
    const DeviceEntries<float>& all = *pass_.shared_gradients;
    const std::size_t tokens = static_cast<std::size_t>(pass_.tokens);
    const std::size_t count = tokens * static_cast<std::size_t>(pass_.attention().key_width());
    const std::size_t biases = tokens * static_cast<std::size_t>(pass_.attention().kv_heads);
    const bool stores = !detail::shares(pass_);
    const auto gather = [&](float* sum, bf16* own) {
      ops::cuda::add_scaled(sum, own, count, 1.0F, pass_.stream);
      if (stores) {
        ops::cuda::round(own, sum, count, pass_.stream);
      }
    };
    gather(all.keys, scratch_.dkeys);
    gather(all.values, scratch_.dvalues);
    if (!detail::sees_decisions(pass_)) {
      return;
    }
    if (stores) {
      ops::cuda::add_scaled(scratch_.dkey_bias, all.bias, biases, 1.0F, pass_.stream);
    } else {
      ops::cuda::add_scaled(all.bias, scratch_.dkey_bias, biases, 1.0F, pass_.stream);
    }
  }

  [[nodiscard]] std::size_t elements() const { return detail::stream_elements(pass_); }

  void input_gradient(bf16* dx, const bf16* dy, const bf16* weight, int outputs, int inputs,
                      bool add = false) {
    detail::input_gradient(pass_, dx, dy, weight, outputs, inputs, add);
  }

  void weight_gradient(const LinearGradients& gradients, const bf16* dy, const bf16* x, int outputs,
                       int inputs, int stride = 0) {
    detail::weight_gradient(pass_, gradients, dy, x, outputs, inputs, stride);
  }

  // From a part's input to the residual stream that it was computed from.
  void through_input(const bf16* dinput, const float* x,
                     const detail::NormTensors<const float>& weights,
                     const detail::NormTensors<float>& gradients) {
    if (pass_.layer_spec().norm_before) {
      return detail::norm_backward(pass_, pass_.layer_spec().norm, weights, gradients,
                                   {.x = gradient_.exact, .rounded = gradient_.rounded}, dinput, x);
    }
    ops::cuda::add_scaled(gradient_.exact, dinput, elements(), 1.0F, pass_.stream);
    ops::cuda::round(gradient_.rounded, gradient_.exact, elements(), pass_.stream);
  }

  // The gradient of a part's output before its norm and multiplier. `exact`: where the unrounded
  // gradient is also wanted; only for parts with a norm.
  [[nodiscard]] const bf16* branch_gradient(const bf16* branch, const float* weight, float* dweight,
                                            float* exact = nullptr) {
    const model::LayerSpec& spec = pass_.layer_spec();
    if (!spec.norm_after && spec.residual_multiplier == 1.0F) {
      return gradient_.rounded;
    }
    if (spec.norm_after) {
      ops::cuda::norm_rows_backward({.x = exact,
                                     .add = false,
                                     .rounded = scratch_.dbranch,
                                     .weight = dweight,
                                     .multiplier = spec.residual_multiplier},
                                    gradient_.exact, branch, pass_.tokens, spec_.hidden,
                                    detail::norm_of(spec.norm, {weight}), pass_.stream);
      return scratch_.dbranch;
    }
    copy_async(scratch_.dbranch, gradient_.rounded, elements(), pass_.stream);
    ops::cuda::scale(scratch_.dbranch, elements(), spec.residual_multiplier, pass_.stream);
    return scratch_.dbranch;
  }

  [[nodiscard]] ops::cuda::TrainingAttentionGradients attention_gradients() const {
    ops::cuda::TrainingAttentionGradients gradients{
        .queries = detail::head_matrix(pass_, scratch_.dqueries, pass_.attention().heads),
        .keys = detail::head_matrix(pass_, scratch_.dkeys, pass_.attention().kv_heads),
        .values = detail::head_matrix(pass_, scratch_.dvalues, pass_.attention().kv_heads),
        .bias = {},
        .sinks = g_.sinks != nullptr ? scratch_.dsinks : nullptr};
    if (detail::biases_keys(pass_)) {
      gradients.bias = detail::column_matrix(pass_, scratch_.dkey_bias, pass_.attention().kv_heads);
    }
    return gradients;
  }

  // From the bias of keys to the source of the decisions: to borrowed channels, or through an
  // adapter to the layer's input.
  void decisions() {
    const bool borrows = model::borrows_channels(spec_);
    ops::cuda::take_decisions_backward(detail::decisions_of(pass_, a_),
                                       detail::results_of(pass_, a_),
                                       {.key_bias = scratch_.dkey_bias,
                                        .alphas = pass_.merges() ? scratch_.dalphas : nullptr,
                                        .loss = pass_.losses + pass_.first_decision(),
                                        .read = scratch_.dread,
                                        .rounded = borrows ? nullptr : scratch_.dprobe,
                                        .rounded_stride = padded_decisions(spec_)},
                                       pass_.stream);
    if (!borrows) {
      probe_weights({g_.decision, g_.decision_bias}, scratch_.dprobe, a_.decision_normed);
      input_gradient(scratch_.dnormed, scratch_.dprobe, w_.decision, padded_decisions(spec_),
                     spec_.hidden);
      detail::norm_backward(pass_, decision_norm(spec_), {w_.decision_norm}, {g_.decision_norm},
                            {.x = gradient_.exact}, scratch_.dnormed, input_);
    }
  }

  // Backward of the rows that computed borrowed channels.
  void rows(const LinearGradients& gradients, const bf16* dprobe, const bf16* weight) {
    probe_weights(gradients, dprobe, a_.normed);
    input_gradient(scratch_.dnormed, dprobe, weight, padded_decisions(spec_), spec_.hidden, true);
  }

  void probe_weights(const LinearGradients& gradients, const bf16* dprobe, const bf16* normed) {
    weight_gradient(gradients, dprobe, normed, static_cast<int>(decision_count(spec_)),
                    spec_.hidden, padded_decisions(spec_));
  }

  // From attention's inputs to the input of q, k and v. Borrowed channels: DMS has them in queries;
  // DMC has decisions in keys and weights in queries.
  [[nodiscard]] ops::cuda::TrainingHeadsGradients heads_gradients() const {
    const bool merges = pass_.merges();
    ops::cuda::TrainingHeadsGradients gradients{
        .queries = scratch_.dqueries,
        .keys = merges ? scratch_.dsingle_keys : scratch_.dkeys,
        .values = merges ? scratch_.dsingle_values : scratch_.dvalues,
        .query_read = merges ? scratch_.domega_read : scratch_.dread,
        .key_read = scratch_.dread,
        .projected = scratch_.projected,
        .query_probe = nullptr,
        .key_probe = nullptr,
        .query_norm = g_.query_norm,
        .key_norm = g_.key_norm};
    if (detail::reads_channels(pass_)) {
      gradients.query_probe = merges ? scratch_.domega_probe : scratch_.dprobe;
      gradients.key_probe = merges ? scratch_.dprobe : nullptr;
    }
    return gradients;
  }

  void projections() {
    detail::grow_queries(pass_, scratch_.dqueries);
    ops::cuda::split_heads_backward(detail::heads_of(pass_, w_, a_, a_.projected),
                                    heads_gradients(), pass_.stream);
    if (detail::norms_whole(pass_)) {
      ops::cuda::norm_whole_backward(detail::whole_norms_of(pass_, w_), scratch_.projected,
                                     a_.projected, g_.query_norm, g_.key_norm, pass_.stream);
    }
    const int width = detail::qkv_width(pass_);
    input_gradient(scratch_.dnormed, scratch_.projected, w_.query, width, spec_.hidden);
    weight_gradient({g_.query, g_.query_bias}, scratch_.projected, a_.normed, width, spec_.hidden);
    if (detail::reads_channels(pass_)) {
      rows({g_.decision, g_.decision_bias}, scratch_.dprobe, w_.decision);
      if (spec_.dmc) {
        rows({g_.omega, g_.omega_bias}, scratch_.domega_probe, w_.omega);
      }
    }
    through_attention_input();
  }

  void through_attention_input() {
    through_input(scratch_.dnormed, input_, detail::attention_norm_of<const float>(w_),
                  detail::attention_norm_of<float>(g_));
  }

  const DevicePass& pass_;
  const model::ModelSpec& spec_;
  const LayerScratch& scratch_;
  const DeviceLayerWeights& w_;
  const float* input_;
  const DeviceActivations& a_;
  const DeviceLayerGradients& g_;
  StreamGradient gradient_;
};

}  // namespace

void layer_backward(const DevicePass& pass, const DeviceLayerWeights& weights, const float* input,
                    const DeviceActivations& activations, const DeviceLayerGradients& gradients,
                    const StreamGradient& gradient) {
  LayerBackward(pass, weights, input, activations, gradients, gradient).run();
}

}  // namespace winnow::train::cuda
