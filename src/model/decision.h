// The compression decisions of a step: reading them, and clearing the channels that carry them.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// One layer's decisions for T tokens. DMS: 1 = evict the key that this token decides about: its
/// logit is above 0. DMC: 1 = merge this token into the open entry, omega = its weight there.
struct Decisions {
  ops::Matrix<std::uint8_t> flags;  // [T, kv_heads]
  ops::Matrix<float> logits;        // [T, kv_heads]
  ops::Matrix<float> omegas;        // [T, kv_heads]
};

/// DMS with an adapter: logits from `hidden` [T, hidden], the layer's input before its norm, of the
/// tokens at `positions`.
void decide_by_adapter(ops::Context& context, const ModelSpec& spec, const AdapterWeights& adapter,
                       ops::Matrix<const float> hidden, std::span<const std::int32_t> positions,
                       const Decisions& decisions);

/// DMS with a borrowed neuron, and DMC: logits from channels of queries [T, heads * head_dim] and
/// keys [T, kv_heads * head_dim], after q/k-norm and before RoPE. Clear the channels afterwards.
void decide_by_channel(const ModelSpec& spec, ops::Matrix<const float> queries,
                       ops::Matrix<const float> keys, const Decisions& decisions);

/// DMC with fixed pooling: whether the token at `position` is merged into the last entry.
inline bool merges_at(const DmcConfig& dmc, std::size_t position) {
  return position % dmc.pooled != 0;
}

}  // namespace winnow::model
