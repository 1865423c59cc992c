// As linear_in_tiles_test.cc, of the kernel for weights that lie in tiles.
#if defined(__x86_64__)
#include "emulated_tiles/tiles.h"
// After it:
#include "ops/cpu/linear_of_tiled.cc"  // NOLINT(bugprone-suspicious-include): on purpose
#endif
