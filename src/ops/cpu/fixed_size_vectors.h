// Kernels that keep vectors in arrays and classes include this before Highway. The compiler does
// not know the size of SVE's vectors, so arrays cannot hold them: such a kernel is compiled for
// NEON on all of aarch64.
#pragma once

#if defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
