#include "model/cuda/mixer_rows.h"

namespace winnow::model::cuda {
namespace {

using Bias = std::span<const float>;

Bias slice_of(Bias bias, int first, int count) {
  return bias.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}
ops::Weight slice_of(ops::Weight weight, int first, int count) {
  const std::int64_t scales = weight.group == 0 ? 0 : first * (weight.cols / weight.group);
  weight.rows = first;
  const std::size_t before = weight.bytes() - static_cast<std::size_t>(scales) * sizeof(bf16);
  weight.rows = count;
  weight.data = static_cast<const std::byte*>(weight.data) + before;
  weight.scales += scales;
  return weight;
}

// Appends `count` rows, after the first `before`, of each of `groups` groups of `stride` rows.
template <class Rows>
void add_share(std::vector<Rows>& to, const Rows& rows, int groups, int stride, int before,
               int count) {
  for (int group = 0; group < groups; ++group) {
    to.push_back(slice_of(rows, group * stride + before, count));
  }
}

MixerRows attention_rows(const AttentionSpec& attention, const LayerWeights& w) {
  MixerRows rows;
  const bool has_bias = !w.query_bias.empty();
  if (attention.output_gate) {
    const int dim = attention.head_dim;
    add_share(rows.qkv, w.query, attention.heads, 2 * dim, 0, dim);
    add_share(rows.output_gate, w.query, attention.heads, 2 * dim, dim, dim);
    if (has_bias) {
      add_share(rows.qkv_bias, Bias(w.query_bias), attention.heads, 2 * dim, 0, dim);
      add_share(rows.output_gate_bias, Bias(w.query_bias), attention.heads, 2 * dim, dim, dim);
    }
  } else {
    rows.qkv.push_back(w.query);
    rows.qkv_bias.emplace_back(w.query_bias);
  }
  if (attention.projects_keys()) {
    rows.qkv.push_back(w.key);
  }
  if (attention.projects_values()) {
    rows.qkv.push_back(w.value);
  }
  rows.qkv_bias.insert(rows.qkv_bias.end(), {w.key_bias, w.value_bias});
  return rows;
}

// See split_recurrent() (mixer_parts.h); a short convolution's gates come first.
MixerRows recurrent_rows(const RecurrentSpec& what, bool joined, const RecurrentWeights& w) {
  const ops::DeltaRuleShape& heads = what.heads;
  if (what.gates_input()) {
    return {.qkv = {w.input_gate, w.input},
            .output_gate = {w.gate},
            .gates = {},
            .qkv_bias = {},
            .output_gate_bias = {}};
  }
  if (what.kind == RecurrentSpec::Kind::state_space) {
    return {.qkv = {w.input},
            .output_gate = {w.gate},
            .gates = {w.decay, w.decay},
            .qkv_bias = {},
            .output_gate_bias = {}};
  }
  if (!joined) {
    return {.qkv = {w.input},
            .output_gate = {w.gate},
            .gates = {w.rate, w.decay},
            .qkv_bias = {},
            .output_gate_bias = {}};
  }
  MixerRows rows;
  const int groups = heads.key_heads;
  const int keys = heads.key_dim;
  const int values = heads.value_width() / groups;
  const int stride = 2 * keys + 2 * values;
  add_share(rows.qkv, w.input, groups, stride, 0, keys);
  add_share(rows.qkv, w.input, groups, stride, keys, keys);
  add_share(rows.qkv, w.input, groups, stride, 2 * keys, values);
  add_share(rows.output_gate, w.input, groups, stride, 2 * keys + values, values);
  const int rates = heads.value_heads / groups;
  add_share(rows.gates, w.rate, groups, 2 * rates, 0, rates);
  add_share(rows.gates, w.rate, groups, 2 * rates, rates, rates);
  return rows;
}

}  // namespace

MixerRows mixer_rows(const ModelSpec& spec, int layer, const LayerWeights& weights) {
  const LayerSpec& what = spec.layer(layer);
  return what.attention() != nullptr
             ? attention_rows(*what.attention(), weights)
             : recurrent_rows(*what.recurrent(), spec.names.joins_recurrent, weights.recurrent);
}

}  // namespace winnow::model::cuda
