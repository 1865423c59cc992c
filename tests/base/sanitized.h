// Whether tests run under AddressSanitizer, which makes them several times slower.
#pragma once

namespace winnow::testing {

/// Then what code touches counts: numbers that the same code gives again are left to other builds.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace winnow::testing
