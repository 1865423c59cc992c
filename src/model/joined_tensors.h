// Families whose files hold several projections as one tensor (Phi-3): q, k and v; gate and up;
// what short convolutions and state spaces take. All other code sees separate projections only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "checkpoint/quantized/weights.h"
#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model {

/// Puts views of the single projections, which are its rows, in place of each joined tensor of the
/// model whose projections are not there, quantised. `where` says for messages which file a tensor
/// comes from. Throws Error when a joined tensor is missing or has another shape.
TensorMap split_joined(const ModelSpec& spec, TensorMap tensors,
                       const std::function<std::string(const std::string& tensor)>& where);

/// Where files that are quantised hold the single projections.
std::map<std::string, quantized::JoinedRows> joined_rows(const ModelSpec& spec);

/// What files hold of the model's tensors: each with its parts.
TensorParts joined(const ModelSpec& spec, const TensorMap& tensors);

}  // namespace winnow::model
