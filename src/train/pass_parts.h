// Queries about a layer and its pass, for every kind of device. `Pass`: LayerPass or
// cuda::DevicePass.
#pragma once

#include "model/channels.h"
#include "train/decisions.h"

namespace winnow::train::detail {

/// Columns of attention's projections: those of q, k and v that the layer has.
inline int qkv_width(const model::AttentionSpec& attention) {
  return attention.query_outputs() + (attention.projects_keys() ? attention.key_width() : 0) +
         (attention.projects_values() ? attention.value_width() : 0);
}

/// Whether the layer attends to another layer's entries.
template <class Pass>
bool shares(const Pass& pass) {
  return pass.attention().shares.has_value();
}

/// Whether there are decisions on the entries that attention reads, by the layer that stores them.
template <class Pass>
bool sees_decisions(const Pass& pass) {
  return pass.spec->decides(pass.attention().shares.value_or(pass.layer)) &&
         pass.decision_mode() != DecisionPass::Mode::off;
}

/// Whether queries (DMC: and keys) of this layer have channels that decisions replace.
template <class Pass>
bool borrows(const Pass& pass) {
  return pass.spec->decides(pass.layer) && model::borrows_channels(*pass.spec);
}

}  // namespace winnow::train::detail
