// The kernel for CPUs with tiles, compiled anew with arrays in their place, so that its tests
// (ops/linear_test.cc, ops/mlp_test.cc) run on others with AVX512_BF16, too: the linker takes what
// is defined here for the library's.
#include "emulated_amx/tiles.h"
// After it:
#include "ops/cpu/linear/x86/gemm_amx.cc"  // NOLINT(bugprone-suspicious-include): on purpose

namespace winnow::ops::cpu {

bool may_use_tiles() {
  return true;
}

}  // namespace winnow::ops::cpu
