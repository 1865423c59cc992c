#include "ops/cpu/linear/amx_permission.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace winnow::ops::cpu {

bool may_use_tiles() {
#if defined(__x86_64__)
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
#else
  return false;
#endif
}

}  // namespace winnow::ops::cpu
