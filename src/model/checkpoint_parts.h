// Shared code of opening and saving a checkpoint; internal to this module.
#pragma once

#include <functional>
#include <string>

#include "model/checkpoint.h"

namespace winnow::model::detail {

/// Checks that `tensors` match `spec`: all are there, with the right shapes and in fp32, fp16 or
/// bf16, and no parameter of a layer would be ignored, except a bias of zeros. For messages,
/// `where` gives the file or directory that a tensor comes from or is missing from.
void check_tensors(const std::function<std::string(const std::string& tensor)>& where,
                   const ModelSpec& spec, const TensorMap& tensors);

}  // namespace winnow::model::detail
