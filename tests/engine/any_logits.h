// Logits of every shape that the sampler may meet.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace winnow::engine::testing {

/// any_logits() has this many shapes; equal seeds modulo it have the same shape.
inline constexpr std::uint64_t kLogitShapes = 24;

/// Random logits: spread, with ties, flat, falling or rising; each peaked or not and with entries
/// of -infinity or not. One is finite.
inline std::vector<float> any_logits(std::size_t vocab, std::uint64_t seed) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::uint64_t shape = seed % kLogitShapes;
  Random random(seed, vocab);
  std::vector<float> logits(vocab);
  for (std::size_t i = 0; i < vocab; ++i) {
    const auto x = static_cast<float>(20.0 * random.uniform() - 12.0);
    const auto place = static_cast<float>(i) / static_cast<float>(vocab);
    const float kinds[] = {x, std::round(x), 0.25F, 0.01F * x, -9.0F * place, 9.0F * place};
    logits[i] = kinds[shape % 6];
  }
  if (shape / 6 % 2 == 1) {
    logits[random.bits() % vocab] = 14.0F;
    logits[random.bits() % vocab] = 13.0F;
  }
  for (std::size_t i = 1; shape / 12 == 1 && i < vocab; ++i) {
    logits[i] = random.uniform() < 0.7 ? kNever : logits[i];
  }
  return logits;
}

}  // namespace winnow::engine::testing
