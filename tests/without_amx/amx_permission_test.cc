// Tiles are refused, so that tests of linear layers (ops/linear_test.cc, ops/mlp_test.cc) take on
// CPUs with AMX the kernels of those without: the linker takes this for the library's.
#include "ops/cpu/linear/x86/amx_permission.h"

namespace winnow::ops::cpu {

bool may_use_tiles() {
  return false;
}

}  // namespace winnow::ops::cpu
