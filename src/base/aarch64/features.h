// The features of this CPU besides NEON.
#pragma once

#include <asm/hwcap.h>
#include <sys/auxv.h>

namespace winnow::aarch64 {

struct Features {
  bool dot_products = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;  // of bytes
  bool byte_matrices = (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;  // products of 2 x 8
  bool bf16 = (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;           // products of 2 x 4
  bool sha256 = (::getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
  bool sve = (::getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
  bool sve2 = (::getauxval(AT_HWCAP2) & HWCAP2_SVE2) != 0;
};

inline const Features& features() {
  static const Features found;
  return found;
}

}  // namespace winnow::aarch64
