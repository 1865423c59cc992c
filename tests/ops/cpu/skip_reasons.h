// Why tests of kernels that only some CPUs run are skipped.
#pragma once

namespace winnow::ops::testing {

inline constexpr const char* kNoBf16Dots =
    "this CPU has neither AVX512_BF16 with AVX512_VBMI nor BF16 of aarch64";
inline constexpr const char* kNoQuantizedDots =
    "this CPU has neither AVX512_BF16 with AVX512_VBMI nor DotProd of aarch64";
inline constexpr const char* kNoByteDots = "this CPU has neither AVX-512 VNNI nor AVX-VNNI";
inline constexpr const char* kNoBf16Tiles =
    "this CPU has no AMX_BF16 beside AVX512_BF16 and AVX512_VBMI, or the kernel does not grant it";

}  // namespace winnow::ops::testing
