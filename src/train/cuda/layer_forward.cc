#include "ops/cuda/activation.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/training/training_norm.h"
#include "train/cuda/layer.h"
#include "train/cuda/layer_parts.h"

namespace winnow::train::cuda {
namespace {

// Decision rows of `normed`, in fp32.
void probe(const DevicePass& pass, float* out, const bf16* normed, const bf16* rows,
           const float* bias) {
  const model::ModelSpec& spec = *pass.spec;
  const int count = padded_decisions(spec);
  pass.linear->multiply(out, normed, rows, pass.tokens, count, spec.hidden, pass.stream);
  if (bias != nullptr) {  // 0 behind its end, as everything between tensors
    ops::cuda::add_bias(out, pass.tokens, count, bias, pass.stream);
  }
}

void project(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  bf16* projected = a.projected != nullptr ? a.projected : pass.scratch->projected;
  pass.linear->multiply(projected, a.normed, w.query, pass.tokens, detail::qkv_width(spec),
                        spec.hidden, pass.stream);
  if (detail::reads_channels(pass)) {
    probe(pass, a.probe, a.normed, w.decision, w.decision_bias);
    if (spec.dmc) {
      probe(pass, a.omega_probe, a.normed, w.omega, w.omega_bias);
    }
  }
  ops::cuda::split_heads(detail::heads_of(pass, w, a, projected), a.queries, a.keys, a.values,
                         spec.dmc ? a.omega_read : a.read, spec.dmc ? a.read : nullptr,
                         pass.stream);
  if (pass.merges() && decides_per_layer(spec)) {
    ops::cuda::share_first_head(a.omega_read, pass.tokens, spec.attention().kv_heads, pass.stream);
  }
}

void decide(const DevicePass& pass, int layer, const DeviceLayerWeights& w, const float* input,
            const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  if (!model::borrows_channels(spec)) {
    ops::cuda::rms_norm(a.decision_normed, input, pass.tokens, spec.hidden, w.decision_norm,
                        spec.final_norm.eps, pass.stream);
    probe(pass, a.probe, a.decision_normed, w.decision, w.decision_bias);
  }
  ops::cuda::take_decisions(detail::decisions_of(pass, layer, a),
                            detail::results_of(pass, layer, a), pass.stream);
}

void attention(const DevicePass& pass, int layer, const DeviceLayerWeights& w, const float* input,
               const DeviceActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  ops::cuda::rms_norm(a.normed, input, pass.tokens, spec.hidden, w.attention_norm,
                      spec.final_norm.eps, layer, pass.first_bad, pass.stream);
  project(pass, w, a);
  if (pass.decides()) {
    decide(pass, layer, w, input, a);
  }
  if (pass.merges()) {
    ops::cuda::segment_average(detail::average_of(pass, a), a.merged_keys, a.merged_values,
                               pass.stream);
  }
  detail::prepare_attention(pass, layer);
  ops::cuda::training_attention(detail::attention_of(pass, a),
                                detail::head_matrix(pass, a.attended, spec.attention().heads),
                                detail::column_matrix(pass, a.normalizers, spec.attention().heads),
                                pass.scratch->attention, pass.stream);
  pass.linear->multiply_add(a.middle, input, a.attended, w.output, pass.tokens, spec.hidden,
                            detail::query_width(spec), pass.stream);
  if (w.output_bias != nullptr) {
    ops::cuda::add_bias(a.middle, pass.tokens, spec.hidden, w.output_bias, pass.stream);
  }
}

void mlp(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
         float* output) {
  const model::ModelSpec& spec = *pass.spec;
  ops::cuda::rms_norm(a.mlp_normed, a.middle, pass.tokens, spec.hidden, w.mlp_norm,
                      spec.final_norm.eps, pass.stream);
  pass.linear->multiply(a.gate_up, a.mlp_normed, w.gate, pass.tokens,
                        2 * spec.feed_forward().intermediate, spec.hidden, pass.stream);
  if (output == nullptr) {
    return;
  }
  bf16* product = pass.scratch->product;
  ops::cuda::silu_multiply(product, a.gate_up, pass.tokens, spec.feed_forward().intermediate,
                           w.gate_bias, pass.stream);
  pass.linear->multiply_add(output, a.middle, product, w.down, pass.tokens, spec.hidden,
                            spec.feed_forward().intermediate, pass.stream);
  if (w.down_bias != nullptr) {
    ops::cuda::add_bias(output, pass.tokens, spec.hidden, w.down_bias, pass.stream);
  }
}

}  // namespace

void layer_forward(const DevicePass& pass, int layer, const DeviceLayerWeights& weights,
                   const float* input, const DeviceActivations& activations, float* output) {
  attention(pass, layer, weights, input, activations);
  mlp(pass, weights, activations, output);
}

}  // namespace winnow::train::cuda
