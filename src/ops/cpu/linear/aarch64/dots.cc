#include "base/aarch64/features.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/quantized_dots.h"

namespace winnow::ops::cpu {

bool has_bf16_dots() {
  return aarch64::features().bf16;
}

bool has_quantized_dots() {
  return aarch64::features().dot_products;
}

bool quantized_dots_take_many_rows() {
  return has_quantized_dots();
}

}  // namespace winnow::ops::cpu
