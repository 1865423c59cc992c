// Numbers for tests to compute with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace winnow::ops::testing {

/// `count` normal numbers, the same for a seed.
inline std::vector<float> normal(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(spread * random.normal()); });
  return values;
}

}  // namespace winnow::ops::testing
