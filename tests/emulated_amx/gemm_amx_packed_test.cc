// As gemm_amx_test.cc, of the kernel for weights that lie in tiles.
#include "emulated_amx/tiles.h"
// After it:
#include "ops/cpu/linear/x86/gemm_amx_packed.cc"  // NOLINT(bugprone-suspicious-include): on purpose
