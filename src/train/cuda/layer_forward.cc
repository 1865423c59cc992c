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
  const ModelConfig& config = *pass.config;
  const int count = padded_decisions(config);
  pass.linear->multiply(out, normed, rows, pass.tokens, count, config.hidden, pass.stream);
  if (bias != nullptr) {  // 0 behind its end, as everything between tensors
    ops::cuda::add_bias(out, pass.tokens, count, bias, pass.stream);
  }
}

void project(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a) {
  const ModelConfig& config = *pass.config;
  bf16* projected = a.projected != nullptr ? a.projected : pass.scratch->projected;
  pass.linear->multiply(projected, a.normed, w.query, pass.tokens, detail::qkv_width(config),
                        config.hidden, pass.stream);
  if (detail::reads_channels(pass)) {
    probe(pass, a.probe, a.normed, w.decision, w.decision_bias);
    if (config.dmc) {
      probe(pass, a.omega_probe, a.normed, w.omega, w.omega_bias);
    }
  }
  ops::cuda::split_heads(detail::heads_of(pass, w, a, projected), a.queries, a.keys, a.values,
                         config.dmc ? a.omega_read : a.read, config.dmc ? a.read : nullptr,
                         pass.stream);
  if (pass.merges() && decides_per_layer(config)) {
    ops::cuda::share_first_head(a.omega_read, pass.tokens, config.kv_heads, pass.stream);
  }
}

void decide(const DevicePass& pass, int layer, const DeviceLayerWeights& w, const float* input,
            const DeviceActivations& a) {
  const ModelConfig& config = *pass.config;
  if (!model::borrows_channels(config)) {
    ops::cuda::rms_norm(a.decision_normed, input, pass.tokens, config.hidden, w.decision_norm,
                        config.norm_eps, pass.stream);
    probe(pass, a.probe, a.decision_normed, w.decision, w.decision_bias);
  }
  ops::cuda::take_decisions(detail::decisions_of(pass, layer, a),
                            detail::results_of(pass, layer, a), pass.stream);
}

void attention(const DevicePass& pass, int layer, const DeviceLayerWeights& w, const float* input,
               const DeviceActivations& a) {
  const ModelConfig& config = *pass.config;
  ops::cuda::rms_norm(a.normed, input, pass.tokens, config.hidden, w.attention_norm,
                      config.norm_eps, layer, pass.first_bad, pass.stream);
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
                                detail::head_matrix(pass, a.attended, config.heads),
                                detail::column_matrix(pass, a.normalizers, config.heads),
                                pass.scratch->attention, pass.stream);
  pass.linear->multiply_add(a.middle, input, a.attended, w.output, pass.tokens, config.hidden,
                            detail::query_width(config), pass.stream);
  if (w.output_bias != nullptr) {
    ops::cuda::add_bias(a.middle, pass.tokens, config.hidden, w.output_bias, pass.stream);
  }
}

void mlp(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a,
         float* output) {
  const ModelConfig& config = *pass.config;
  ops::cuda::rms_norm(a.mlp_normed, a.middle, pass.tokens, config.hidden, w.mlp_norm,
                      config.norm_eps, pass.stream);
  pass.linear->multiply(a.gate_up, a.mlp_normed, w.gate, pass.tokens, 2 * config.intermediate,
                        config.hidden, pass.stream);
  if (output == nullptr) {
    return;
  }
  bf16* product = pass.scratch->product;
  ops::cuda::silu_multiply(product, a.gate_up, pass.tokens, config.intermediate, w.gate_bias,
                           pass.stream);
  pass.linear->multiply_add(output, a.middle, product, w.down, pass.tokens, config.hidden,
                            config.intermediate, pass.stream);
  if (w.down_bias != nullptr) {
    ops::cuda::add_bias(output, pass.tokens, config.hidden, w.down_bias, pass.stream);
  }
}

}  // namespace

void layer_forward(const DevicePass& pass, int layer, const DeviceLayerWeights& weights,
                   const float* input, const DeviceActivations& activations, float* output) {
  attention(pass, layer, weights, input, activations);
  mlp(pass, weights, activations, output);
}

}  // namespace winnow::train::cuda
