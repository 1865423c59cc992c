// Families whose files have other names for tensors than Llama's. All other code sees Llama's.
#pragma once

#include <string>

#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model {

/// The name under which files of a family have the tensor `name`.
std::string stored_name(const TensorNames& names, std::string name);

/// The tensors of a family's file under the names that all other code knows; of files that hold
/// more (TensorNames::within) the model's alone.
TensorMap renamed(const TensorNames& names, TensorMap tensors);

/// The other way round.
TensorParts stored(const TensorNames& names, TensorParts tensors);

}  // namespace winnow::model
