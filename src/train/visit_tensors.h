// Names and shapes of the tensors of a tree.
#pragma once

#include <string>

#include "model/channels.h"
#include "model/visit_tensors.h"
#include "train/tensors.h"

namespace winnow::train {

/// visit(name, shape, tensor) for every tensor in such a model's tree, matrices and
/// vectors alike, in memory order: tensors of one product (q, k and v; gate and up) are contiguous.
/// The optional bias of an adapter is passed without a shape.
template <class Tree, class Visit>
void visit_tensors(const model::ModelSpec& spec, Tree& tree, const Visit& visit) {
  model::visit_ends(spec, tree, visit);
  tree.layers.resize(static_cast<std::size_t>(spec.layer_count()));
  for (int i = 0; i < spec.layer_count(); ++i) {
    auto& layer = tree.layers[static_cast<std::size_t>(i)];
    model::visit_layer(spec, i, layer, visit);
    if (!spec.decides(i)) {
      continue;
    }
    const model::AttentionSpec& attention = *spec.layer(i).attention();
    const bool borrows = model::borrows_channels(spec);
    const Shape rows{attention.kv_heads, spec.hidden};
    const Shape bias{attention.kv_heads};
    const bool has_bias = borrows && attention.qkv_bias;
    visit(decision_name(spec, i, "weight"), rows, layer.decision);
    if (has_bias || !borrows) {
      visit(decision_name(spec, i, "bias"), has_bias ? bias : Shape{}, layer.decision_bias);
    }
    if (!borrows) {
      visit(decision_name(spec, i, "norm.weight"), Shape{spec.hidden}, layer.decision_norm);
    }
    if (spec.dmc) {
      visit(omega_name(i, "weight"), rows, layer.omega);
      if (has_bias) {
        visit(omega_name(i, "bias"), bias, layer.omega_bias);
      }
    }
  }
}

}  // namespace winnow::train
