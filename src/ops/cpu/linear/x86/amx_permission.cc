#include "ops/cpu/linear/x86/amx_permission.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace winnow::ops::cpu {

bool may_use_tiles() {
  constexpr unsigned kTiles = 1U << 24;
  constexpr unsigned kProductsOfBf16 = 1U << 22;
  constexpr int kTileData = 18;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTiles) != 0 &&
         (d & kProductsOfBf16) != 0 &&
         ::syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) == 0;
}

}  // namespace winnow::ops::cpu
