// A norm as its NormSpec describes it, on weights that hold what is multiplied by.
#pragma once

#include <span>

#include "model/spec.h"
#include "ops/norm.h"

namespace winnow::model {

/// out may be x; `bias` is empty where there is none.
inline void normalize(const NormSpec& spec, ops::Matrix<float> out, ops::Matrix<const float> x,
                      std::span<const float> weight, std::span<const float> bias = {}) {
  if (spec.centers()) {
    ops::layer_norm(out, x, weight, bias, spec.eps);
  } else {
    ops::rms_norm(out, x, weight, spec.eps);
  }
}

}  // namespace winnow::model
