#include "ops/cpu/linear/bf16_dots.h"

#include "ops/cpu/linear/quantized_dots.h"

namespace winnow::ops::cpu {

bool has_bf16_dots() {
  static const bool has =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi");
  return has;
}

bool has_quantized_dots() {
  return has_bf16_dots();
}

bool quantized_dots_take_many_rows() {
  return false;
}

}  // namespace winnow::ops::cpu
