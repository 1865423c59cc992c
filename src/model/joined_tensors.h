// Families whose files hold several projections as one tensor (Phi-3): q, k and v; gate and up;
// the inputs of short convolutions and state spaces. All other code sees separate projections only.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "checkpoint/quantized/weights.h"
#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model {

/// Replaces each joined tensor of the model by views of its projections, which are its rows, unless
/// these are there already, quantised. `where` gives the file of a tensor, for messages. Throws
/// Error if a joined tensor is missing or has another shape.
TensorMap split_joined(const ModelSpec& spec, TensorMap tensors,
                       const std::function<std::string(const std::string& tensor)>& where);

/// The rows of the single projections in quantised files.
std::map<std::string, quantized::JoinedRows> joined_rows(const ModelSpec& spec);

/// The model's tensors in the layout of files: each with its parts.
TensorParts joined(const ModelSpec& spec, const TensorMap& tensors);

}  // namespace winnow::model
