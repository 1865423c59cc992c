// Stubs for the functions of x86's tiles (AMX), which no aarch64 CPU has.
#include <cassert>

#include "ops/cpu/linear/gemm_amx.h"
#include "ops/cpu/linear/gemm_amx_packed.h"

namespace winnow::ops::cpu {

bool has_bf16_tiles() {
  return false;
}

bool fits_tiles(std::size_t, std::size_t) {
  return false;
}

void gemm_amx(Workspace&, std::span<const LinearTarget>, Matrix<const float>) {
  assert(has_bf16_tiles());
}

bool takes_tiled(const Context&, std::size_t, const Weight&) {
  return false;
}

void gemm_amx_packed(Workspace&, std::span<const LinearTarget>, Matrix<const float>,
                     const AmxPackedWeights&) {
  assert(has_bf16_tiles());
}

void add_gemm_amx_packed(Workspace&, const LinearTarget&, Matrix<const float>,
                         const AmxPackedWeights&) {
  assert(has_bf16_tiles());
}

void add_mlp_of_tiled(Workspace&, Matrix<float>, Matrix<const float>, const MlpWeights&,
                      const AmxPackedWeights&) {
  assert(has_bf16_tiles());
}

}  // namespace winnow::ops::cpu
