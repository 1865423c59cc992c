// The general path's recurrent mixers, output gates and heads of different widths.
#include "model/cuda/large_batch_layers.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/recurrent/delta_inputs.h"
#include "ops/cuda/recurrent/delta_rule.h"
#include "ops/cuda/recurrent/output_gates.h"
#include "ops/cuda/recurrent/short_conv.h"

namespace winnow::model::cuda {

void LargeBatchLayers::reserve_mixers(int rows) {
  const auto width = [rows](int cols) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  };
  if (model_.spec().attention().output_gate || model_.spec().recurrent() != nullptr) {
    output_gates_.ensure(width(model_.mixer_width()));
  }
  if (const RecurrentSpec* mixer = model_.spec().recurrent()) {
    recurrent_input_.ensure(width(mixer->channels() * (mixer->gates_input() ? 2 : 1)));
    if (mixer->has_matrices()) {
      recurrent_mixed_.ensure(width(mixer->channels()));
      recurrent_gates_.ensure(width(padded_gates(mixer->heads.value_heads)));
    }
  }
}

void LargeBatchLayers::project_output_gates(int layer, int rows, cudaStream_t stream) {
  products_.multiply(output_gates_.data(), normed(), model_.layer(layer).output_gate.view(),
                     padded(rows), stream);
}

void LargeBatchLayers::project_recurrent(int layer, int rows, cudaStream_t stream) {
  const DeviceLayerWeights& w = model_.layer(layer);
  products_.multiply(recurrent_input_.data(), normed_.data(), w.qkv.view(), padded(rows), stream);
  if (!model_.recurrent(layer)->has_matrices()) {
    return;
  }
  products_.linear().multiply(
      recurrent_gates_.data(), normed_.data(), w.recurrent.gates.data(), padded(rows),
      padded_gates(model_.recurrent(layer)->heads.value_heads), model_.hidden(), stream);
}

void LargeBatchLayers::recall(int layer, const ops::cuda::RecurrentRows& sequences, bf16* out,
                              int rows, cudaStream_t stream) {
  const RecurrentSpec& mixer = *model_.recurrent(layer);
  ops::cuda::RecurrentRows own = sequences;
  own.offset = static_cast<std::size_t>(model_.spec().recurrent_before(layer)) *
               static_cast<std::size_t>(mixer.state_size());
  if (mixer.has_matrices()) {
    return recall_matrices(layer, own, out, rows, stream);
  }
  ops::cuda::short_conv({.projected = recurrent_input_.data(),
                         .gates = output_gates_.data(),
                         .taps = model_.layer(layer).recurrent.taps.data(),
                         .tap_count = mixer.taps,
                         .channels = mixer.channels(),
                         .out = out},
                        own, stream);
}

void LargeBatchLayers::recall_matrices(int layer, const ops::cuda::RecurrentRows& own, bf16* out,
                                       int rows, cudaStream_t stream) {
  const RecurrentSpec& mixer = *model_.recurrent(layer);
  const ops::DeltaRuleShape& heads = mixer.heads;
  const DeviceRecurrentWeights& w = model_.layer(layer).recurrent;
  const int stride = padded_gates(heads.value_heads);
  ops::cuda::delta_inputs(heads,
                          {.projected = recurrent_input_.data(),
                           .mixed = recurrent_mixed_.data(),
                           .gates = recurrent_gates_.data(),
                           .gate_stride = stride,
                           .taps = w.taps.data(),
                           .tap_count = mixer.taps,
                           .conv_bias = data_or_null(w.conv_bias),
                           .log_decay = w.log_decay.data(),
                           .decay_bias = w.decay_bias.data(),
                           .limits = mixer.rates},
                          own, stream);
  float* recalled = recurrent_input_.data();  // its old values are not needed any more
  ops::cuda::delta_rule(heads,
                        {.mixed = recurrent_mixed_.data(),
                         .gates = recurrent_gates_.data(),
                         .gate_stride = stride,
                         .skip = data_or_null(w.skip),
                         .out = recalled},
                        own, stream);
  const float eps = model_.spec().layer(layer).norm.eps;
  if (mixer.kind == RecurrentSpec::Kind::state_space) {
    return ops::cuda::norm_gated(out, recalled,
                                 {.rows = rows,
                                  .heads = mixer.norm_groups,
                                  .dim = heads.value_width() / mixer.norm_groups,
                                  .gates = output_gates_.data()},
                                 w.norm.data(), eps, stream);
  }
  ops::cuda::gated_rms_norm(out, recalled,
                            {.rows = rows,
                             .heads = heads.value_heads,
                             .dim = heads.value_dim,
                             .gates = output_gates_.data()},
                            w.norm.data(), eps, stream);
}

const bf16* LargeBatchLayers::narrowed(int layer, const bf16* attended, int rows,
                                       cudaStream_t stream) {
  const AttentionSpec* attention = model_.attention(layer);
  const int cached_dim = model_.spec().cached_head_dim();
  if (attention == nullptr || attention->head_dim == cached_dim) {
    return attended;
  }
  const auto heads = static_cast<std::size_t>(rows) * static_cast<std::size_t>(attention->heads);
  ops::cuda::narrow_heads(gate_up_.data(), attention->head_dim, attended, cached_dim, heads,
                          stream);
  return gate_up_.data();
}

void LargeBatchLayers::gate(int layer, bf16* attended, int rows, cudaStream_t stream) {
  const AttentionSpec& attention = *model_.spec().layer(layer).attention();
  if (attention.output_gate) {
    ops::cuda::sigmoid_multiply(attended,
                                {.rows = rows,
                                 .heads = attention.heads,
                                 .dim = attention.head_dim,
                                 .gates = output_gates_.data()},
                                data_or_null(model_.layer(layer).output_gate_bias), stream);
  }
}

}  // namespace winnow::model::cuda
