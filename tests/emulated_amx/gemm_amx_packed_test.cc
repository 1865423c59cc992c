// As gemm_amx_test.cc, of the kernel for weights that lie in tiles.
#if defined(__x86_64__)
#include "emulated_amx/tiles.h"
// After it:
#include "ops/cpu/linear/gemm_amx_packed.cc"  // NOLINT(bugprone-suspicious-include): on purpose
#endif
