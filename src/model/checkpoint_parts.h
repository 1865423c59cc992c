// Shared code of opening and saving a checkpoint; internal to this module.
#pragma once

#include <functional>
#include <string>

#include "model/checkpoint.h"

namespace winnow::model::detail {

/// Checks that `tensors` are what `spec` calls for: all there, with the right shapes and fp32,
/// fp16 or bf16, and no parameter of a layer that would be ignored; a bias of zeros may be. `where`
/// says for messages which file or directory a tensor comes from, or is missing from.
void check_tensors(const std::function<std::string(const std::string& tensor)>& where,
                   const ModelSpec& spec, const TensorMap& tensors);

}  // namespace winnow::model::detail
