// Adding the products of LoRA adapters to a step's rows.
#pragma once

#include <optional>

#include "model/lora.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/mlp.h"

namespace winnow::model {

/// out += product(x), if there is one.
void add_lora(ops::Context& context, ops::Matrix<float> out, ops::Matrix<const float> x,
              const std::optional<LoraProduct>& product);

/// out += an MLP whose matrices have LoRA products.
void add_adapted_mlp(ops::Context& context, ops::Matrix<float> out, ops::Matrix<const float> x,
                     const ops::MlpWeights& weights, const LoraLayer& lora);

}  // namespace winnow::model
