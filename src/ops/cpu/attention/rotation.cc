#include "ops/rotation.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>

namespace winnow::ops {
namespace {

constexpr std::size_t kLanes = 32;  // lanes of a warp on the device

void flip_signs(std::span<float> x) {
  for (std::size_t d = 0; d < x.size(); ++d) {
    x[d] = flips_sign(static_cast<int>(d)) ? -x[d] : x[d];
  }
}

// x[i] and x[i + distance] become their sum and their difference.
void mix(std::span<float> x, std::size_t i, std::size_t distance) {
  const float a = x[i];
  const float b = x[i + distance];
  x[i] = a + b;
  x[i + distance] = a - b;
}

// Subtracts 2 / blocks of their sum from the `blocks` numbers x[0], x[block], x[2 block] ...
void reflect(float* x, std::size_t block, std::size_t blocks) {
  const std::size_t groups = std::max<std::size_t>(1, kLanes / block);
  std::array<float, kLanes> sums{};
  for (std::size_t b = 0; b < blocks; ++b) {
    sums[b % groups] += x[b * block];
  }
  for (std::size_t step = 1; step < groups; step *= 2) {
    for (std::size_t g = 0; g < groups; g += 2 * step) {
      sums[g] += sums[g + step];
    }
  }
  const float part = sums[0] * (2.0F / static_cast<float>(blocks));
  for (std::size_t b = 0; b < blocks; ++b) {
    x[b * block] -= part;
  }
}

// The rotation without its sign flips; its own inverse. One factor of the Hadamard matrix mixes the
// two halves of the channels, the others mix the places within a block of each half.
void mix_channels(std::span<float> x) {
  assert(x.size() % 8 == 0);
  const std::size_t half = x.size() / 2;
  const std::size_t block = half & (~half + 1);  // the largest power of two that divides it
  for (std::size_t width = 1; width < block; width *= 2) {
    for (std::size_t first = 0; first < x.size(); first += 2 * width) {
      for (std::size_t i = first; i < first + width; ++i) {
        mix(x, i, width);
      }
    }
  }
  for (std::size_t i = 0; i < half; ++i) {
    mix(x, i, half);
  }
  if (half > block) {
    for (const std::size_t side : {std::size_t{0}, half}) {
      for (std::size_t i = 0; i < block; ++i) {
        reflect(x.data() + side + i, block, half / block);
      }
    }
  }
  const float factor = 1.0F / std::sqrt(static_cast<float>(2 * block));
  std::ranges::transform(x, x.begin(), [factor](float value) { return value * factor; });
}

}  // namespace

void rotate(std::span<float> x) {
  flip_signs(x);
  mix_channels(x);
}

void rotate_back(std::span<float> x) {
  mix_channels(x);
  flip_signs(x);
}

}  // namespace winnow::ops
