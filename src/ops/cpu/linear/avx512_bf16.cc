#include "ops/cpu/linear/avx512_bf16.h"

namespace winnow::ops::cpu {

bool has_bf16_dots() {
#if defined(__x86_64__)
  static const bool has =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi");
  return has;
#else
  return false;
#endif
}

}  // namespace winnow::ops::cpu
