#include "model/lora_products.h"

#include "ops/activation.h"
#include "ops/linear.h"

namespace winnow::model {
namespace {

ops::Matrix<float> take(ops::Context& context, std::size_t rows, std::int64_t cols) {
  const auto width = static_cast<std::size_t>(cols);
  return {context.workspace->take<float>(rows * width).data(), rows, width};
}

}  // namespace

void add_lora(ops::Context& context, ops::Matrix<float> out, ops::Matrix<const float> x,
              const std::optional<LoraProduct>& product) {
  if (!product || x.rows == 0) {
    return;
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const ops::Matrix<float> inner = take(context, x.rows, product->down.rows);
  ops::linear(context, inner, x, product->down);
  ops::scale(inner, product->scale);
  ops::add_linear(context, out, inner, product->up);
}

void add_adapted_mlp(ops::Context& context, ops::Matrix<float> out, ops::Matrix<const float> x,
                     const ops::MlpWeights& weights, const LoraLayer& lora) {
  if (x.rows == 0) {
    return;
  }
  const ops::Workspace::Scope scope(*context.workspace);
  ops::Matrix<float> inner = take(context, x.rows, weights.up->rows);
  ops::linear(context, inner, x, *weights.up, weights.up_bias);
  add_lora(context, inner, x, lora.up);
  if (weights.gate != nullptr) {
    const ops::Matrix<float> gate = take(context, x.rows, weights.gate->rows);
    ops::linear(context, gate, x, *weights.gate, weights.gate_bias);
    add_lora(context, gate, x, lora.gate);
    ops::activate_multiply(weights.activation, gate, inner);
    inner = gate;
  } else {
    ops::activate(weights.activation.kind, inner);
  }
  ops::add_linear(context, out, inner, *weights.down, weights.down_bias);
  add_lora(context, out, inner, lora.down);
}

}  // namespace winnow::model
