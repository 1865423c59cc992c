// Stubs: gemm_quantized_dots() uses aarch64's products of bytes.
#include "ops/cpu/linear/byte_dots.h"

#include <cassert>

namespace winnow::ops::cpu {

bool has_byte_dots() {
  return false;
}

void gemm_byte_dots(Workspace&, std::span<const LinearTarget>, Matrix<const float>) {
  assert(has_byte_dots());
}

}  // namespace winnow::ops::cpu
