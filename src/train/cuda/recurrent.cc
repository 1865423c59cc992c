#include "train/cuda/recurrent.h"

#include "ops/cuda/training/training_delta.h"
#include "ops/cuda/training/training_recurrent.h"
#include "train/cuda/linear_backward.h"

namespace winnow::train::cuda::detail {
namespace {

const model::RecurrentSpec& mixer_of(const DevicePass& pass) {
  return *pass.layer_spec().recurrent();
}

// Output widths of the two products: of queries, keys, values and gates; of rates and decays. Their
// matrices are contiguous, whether or not the file joins them.
int projected_width(const DevicePass& pass) {
  return mixer_of(pass).channels() + mixer_of(pass).heads.value_width();
}
int logit_count(const DevicePass& pass) {
  return 2 * mixer_of(pass).heads.value_heads;
}
int logit_stride(const DevicePass& pass) {
  return padded_gates(mixer_of(pass).heads.value_heads);
}

ops::cuda::TrainingRecurrent layer_of(const DevicePass& pass, const DeviceLayerWeights& w,
                                      const DeviceActivations& a) {
  const model::RecurrentSpec& mixer = mixer_of(pass);
  return {.heads = mixer.heads,
          .joined = pass.spec->names.joins_recurrent,
          .rows = pass.tokens,
          .first_key = pass.first_key,
          .projected = a.recurrent_projected,
          .logits = a.recurrent_logits,
          .logit_stride = logit_stride(pass),
          .taps = w.recurrent.taps,
          .tap_count = mixer.taps,
          .log_decay = w.recurrent.log_decay,
          .decay_bias = w.recurrent.decay_bias,
          .norm = w.recurrent.norm,
          .eps = pass.layer_spec().norm.eps};
}

// The delta rule, with its inputs in scratch.
ops::cuda::TrainingDelta rule_of(const DevicePass& pass,
                                 const ops::cuda::TrainingRecurrent& layer) {
  const LayerScratch& scratch = *pass.scratch;
  return {.heads = layer.heads,
          .rows = layer.rows,
          .first_key = layer.first_key,
          .mixed = scratch.mixed,
          .rates = scratch.rates,
          .log_decays = scratch.log_decays,
          .scratch = scratch.delta};
}

// Computes the rule's inputs from a layer's activations, and runs it. Without `out`, it computes
// only what backward needs.
void run_rule(const DevicePass& pass, const ops::cuda::TrainingRecurrent& layer, bf16* out) {
  const LayerScratch& scratch = *pass.scratch;
  ops::cuda::recurrent_inputs(layer, scratch.mixed, scratch.rates, scratch.log_decays, pass.stream);
  ops::cuda::training_delta(rule_of(pass, layer), out, pass.stream);
}

}  // namespace

void recall(const DevicePass& pass, const DeviceLayerWeights& w, const DeviceActivations& a) {
  const int hidden = pass.spec->hidden;
  pass.linear->multiply(a.recurrent_projected, a.normed, w.recurrent.input, pass.tokens,
                        projected_width(pass), hidden, pass.stream);
  pass.linear->multiply(a.recurrent_logits, a.normed, w.recurrent.rate, pass.tokens,
                        logit_count(pass), hidden, pass.stream, logit_stride(pass));
  run_rule(pass, layer_of(pass, w, a), a.recalled);
}

void recurrent_output(const DevicePass& pass, const DeviceLayerWeights& w,
                      const DeviceActivations& a) {
  ops::cuda::recurrent_outputs(layer_of(pass, w, a), pass.scratch->gated, a.recalled, pass.stream);
}

void recall_backward(const DevicePass& pass, const DeviceLayerWeights& w,
                     const DeviceActivations& a, const DeviceLayerGradients& gradients) {
  const LayerScratch& scratch = *pass.scratch;
  const auto& own = gradients.recurrent;
  const ops::cuda::TrainingRecurrent layer = layer_of(pass, w, a);
  const ops::cuda::TrainingRecurrentGradients of_layer{.projected = scratch.projected,
                                                       .logits = scratch.drecurrent_logits,
                                                       .taps = own.taps,
                                                       .log_decay = own.log_decay,
                                                       .decay_bias = own.decay_bias,
                                                       .norm = own.norm};
  ops::cuda::recurrent_outputs_backward(layer, scratch.drecalled, scratch.dattended, a.recalled,
                                        of_layer, pass.stream);
  if (!pass.recomputed) {
    run_rule(pass, layer, nullptr);
  }
  ops::cuda::training_delta_backward(rule_of(pass, layer), scratch.drecalled, scratch.dmixed,
                                     pass.stream);
  ops::cuda::recurrent_inputs_backward(layer, scratch.dmixed, scratch.dconvolved, of_layer,
                                       pass.stream);

  const int hidden = pass.spec->hidden;
  input_gradient(pass, scratch.dnormed, scratch.projected, w.recurrent.input, projected_width(pass),
                 hidden);
  weight_gradient(pass, {own.input}, scratch.projected, a.normed, projected_width(pass), hidden);
  input_gradient(pass, scratch.dnormed, scratch.drecurrent_logits, w.recurrent.rate,
                 logit_count(pass), hidden, true, logit_stride(pass));
  weight_gradient(pass, {own.rate}, scratch.drecurrent_logits, a.normed, logit_count(pass), hidden,
                  logit_stride(pass));
}

}  // namespace winnow::train::cuda::detail
