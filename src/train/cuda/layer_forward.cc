#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/general/norm.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/training/training_norm.h"
#include "train/cuda/experts.h"
#include "train/cuda/feed_forward.h"
#include "train/cuda/layer.h"
#include "train/cuda/layer_embeddings.h"
#include "train/cuda/layer_parts.h"

namespace winnow::train::cuda {
namespace {

using detail::stream_elements;

// Products of `normed` and the decision rows, in fp32.
void probe(const DevicePass& pass, float* out, const bf16* normed, const bf16* rows,
           const float* bias) {
  const model::ModelSpec& spec = *pass.spec;
  const int count = padded_decisions(spec);
  pass.linear->multiply(out, normed, rows, pass.tokens, count, spec.hidden, pass.stream);
  if (bias != nullptr) {  // padded with zeros, as all tensors are
    ops::cuda::add_bias(out, pass.tokens, count, bias, pass.stream);
  }
}

void project(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  bf16* projected = a.projected != nullptr ? a.projected : pass.scratch->projected;
  pass.linear->multiply(projected, a.normed, w.query, pass.tokens, detail::qkv_width(pass),
                        spec.hidden, pass.stream);
  if (detail::reads_channels(pass)) {
    probe(pass, a.probe, a.normed, w.decision, w.decision_bias);
    if (spec.dmc) {
      probe(pass, a.omega_probe, a.normed, w.omega, w.omega_bias);
    }
  }
  if (detail::norms_whole(pass)) {
    ops::cuda::norm_whole(detail::whole_norms_of(pass, w), pass.scratch->projected, projected,
                          pass.stream);
    projected = pass.scratch->projected;
  }
  ops::cuda::split_heads(detail::heads_of(pass, w, a, projected), a.queries, a.keys, a.values,
                         spec.dmc ? a.omega_read : a.read, spec.dmc ? a.read : nullptr,
                         pass.stream);
  detail::grow_queries(pass, a.queries);
  if (pass.merges() && decides_per_layer(spec)) {
    ops::cuda::share_first_head(a.omega_read, pass.tokens, pass.attention().kv_heads, pass.stream);
  }
}

void decide(const DevicePass& pass, const DeviceLayerWeights& w, const float* input,
            const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  if (!model::borrows_channels(spec)) {
    ops::cuda::rms_norm(a.decision_normed, input, pass.tokens, spec.hidden, w.decision_norm,
                        spec.final_norm.eps, pass.stream);
    probe(pass, a.probe, a.decision_normed, w.decision, w.decision_bias);
  }
  ops::cuda::take_decisions(detail::decisions_of(pass, a), detail::results_of(pass, a),
                            pass.stream);
}

// The input that a part of the layer computes from the residual stream.
void take_input(const DevicePass& pass, bf16* input, const float* stream,
                const detail::NormTensors<const float>& weights, int* first_bad) {
  if (!pass.layer_spec().norm_before) {
    return ops::cuda::round(input, stream, stream_elements(pass), pass.stream);
  }
  ops::cuda::norm_rows(input, stream, pass.tokens, pass.spec->hidden,
                       detail::norm_of(pass.layer_spec().norm, weights), pass.layer, first_bad,
                       pass.stream);
}

// A part's last product and how it is added to the residual stream.
struct Branch {
  ProductRows x;       // [T, inputs]
  const bf16* weight;  // [hidden, inputs]
  const float* bias;   // or null
  int inputs;
  const float* post_norm;
  bf16* kept;  // [T, hidden]: the norm's input
};

void copy_stream(const DevicePass& pass, float* to, const float* from) {
  if (to != from) {
    copy_async(to, from, stream_elements(pass), pass.stream);
  }
}

void add_bias_of(const DevicePass& pass, const Branch& branch, float* out) {
  if (branch.bias != nullptr) {
    ops::cuda::add_bias(out, pass.tokens, pass.spec->hidden, branch.bias, pass.stream);
  }
}

// out = stream + multiplier * [norm](x weight^T + bias)
void add_branch(const DevicePass& pass, const Branch& branch, const float* stream, float* out) {
  const model::LayerSpec& spec = pass.layer_spec();
  const int hidden = pass.spec->hidden;
  if (spec.norm_after) {
    pass.linear->multiply(branch.kept, branch.x, branch.weight, pass.tokens, hidden, branch.inputs,
                          pass.stream);
    return detail::add_normed(pass, branch.kept, branch.post_norm, spec.residual_multiplier, stream,
                              out);
  }
  if (spec.residual_multiplier == 1.0F) {
    pass.linear->multiply_add(out, stream, branch.x, branch.weight, pass.tokens, hidden,
                              branch.inputs, pass.stream);
    add_bias_of(pass, branch, out);
  } else {
    pass.linear->multiply(pass.scratch->branch, branch.x, branch.weight, pass.tokens, hidden,
                          branch.inputs, pass.stream);
    add_bias_of(pass, branch, pass.scratch->branch);
    ops::cuda::scale(pass.scratch->branch, stream_elements(pass), spec.residual_multiplier,
                     pass.stream);
    ops::cuda::add_scaled(pass.scratch->branch, stream, stream_elements(pass), 1.0F, pass.stream);
    copy_stream(pass, out, pass.scratch->branch);
  }
}

// Copies the entries for the layers that share them.
void show_entries(const DevicePass& pass, const DeviceActivations& a) {
  const DeviceEntries<bf16> entries = detail::entries_of(pass, a);
  const auto copy = [&](auto* to, const auto* from, int width) {
    copy_async(to, from, static_cast<std::size_t>(pass.tokens) * static_cast<std::size_t>(width),
               pass.stream);
  };
  copy(pass.shared->keys, entries.keys, pass.attention().key_width());
  copy(pass.shared->values, entries.values, pass.attention().key_width());
  if (pass.decides()) {
    copy(pass.shared->bias, entries.bias, pass.attention().kv_heads);
  }
}

void attention(const DevicePass& pass, const DeviceLayerWeights& w, const float* input,
               const DeviceActivations& a) {
  const model::AttentionSpec& spec = pass.attention();
  project(pass, w, a);
  if (pass.decides()) {
    decide(pass, w, input, a);
  }
  if (pass.merges()) {
    ops::cuda::segment_average(detail::average_of(pass, a), a.merged_keys, a.merged_values,
                               pass.stream);
  }
  if (pass.shared != nullptr && !detail::shares(pass)) {
    show_entries(pass, a);
  }
  detail::prepare_attention(pass);
  ops::cuda::training_attention(
      detail::attention_of(pass, w, a), detail::head_matrix(pass, a.attended, spec.heads),
      detail::column_matrix(pass, a.normalizers, spec.heads), pass.scratch->attention, pass.stream);
}

// From the layer's input to the residual stream after its mixer.
void mix(const DevicePass& pass, const DeviceLayerWeights& w, const float* input,
         const DeviceActivations& a) {
  take_input(pass, a.normed, input, detail::attention_norm_of<const float>(w), pass.first_bad);
  if (pass.layer_spec().recurrent() != nullptr) {
    detail::recall(pass, w, a);
  } else {
    attention(pass, w, input, a);
  }
  add_branch(pass,
             {detail::mixer_output(pass, w, a), w.output, w.output_bias, detail::mixer_width(pass),
              w.attention_post_norm, a.attention_branch},
             input, a.middle);
}

// The same for the sum of the experts' outputs.
void add_experts_branch(const DevicePass& pass, const DeviceLayerWeights& w,
                        const DeviceActivations& a, float* output) {
  const model::LayerSpec& spec = pass.layer_spec();
  if (!spec.norm_after && output == nullptr) {
    return detail::experts_forward(pass, w, a, nullptr);
  }
  if (!spec.norm_after && spec.residual_multiplier == 1.0F) {
    copy_stream(pass, output, a.middle);
    return detail::experts_forward(pass, w, a, output);
  }
  float* branch = pass.scratch->branch;
  const std::size_t count = stream_elements(pass);
  winnow::cuda::check(cudaMemsetAsync(branch, 0, count * sizeof(float), pass.stream), "fill");
  detail::experts_forward(pass, w, a, branch);
  if (spec.norm_after) {
    ops::cuda::round(a.mlp_branch, branch, count, pass.stream);
    return detail::add_normed(pass, a.mlp_branch, w.mlp_post_norm, spec.residual_multiplier,
                              a.middle, output);
  }
  copy_stream(pass, output, a.middle);
  ops::cuda::add_scaled(output, branch, count, spec.residual_multiplier, pass.stream);
}

void mlp(const DevicePass& pass, const DeviceLayerWeights& w, const float* input,
         const DeviceActivations& a, float* output) {
  const model::LayerSpec& spec = pass.layer_spec();
  take_input(pass, a.mlp_normed, spec.parallel ? input : a.middle,
             detail::mlp_norm_of<const float>(pass, w), nullptr);
  if (spec.feed_forward.experts) {
    return add_experts_branch(pass, w, a, output);
  }
  detail::project_dense(pass, w, a);
  if (output == nullptr && !spec.norm_after) {
    return;
  }
  add_branch(pass,
             {detail::dense_product(pass, w, a), w.down, w.down_bias,
              spec.feed_forward.dense_width(), w.mlp_post_norm, a.mlp_branch},
             a.middle, output);
}

}  // namespace

void layer_forward(const DevicePass& pass, const DeviceLayerWeights& weights, const float* input,
                   const DeviceActivations& activations, float* output) {
  mix(pass, weights, input, activations);
  if (pass.spec->layer_embeddings) {
    mlp(pass, weights, input, activations, activations.fed);
    detail::add_layer_embedding(pass, weights, activations, output);
  } else {
    mlp(pass, weights, input, activations, output);
  }
  if (output != nullptr && pass.layer_spec().output_scale) {
    ops::cuda::scale_by(output, stream_elements(pass), weights.output_scale, pass.stream);
  }
}

}  // namespace winnow::train::cuda
