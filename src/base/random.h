// A small counter-based random generator: the value at (seed, index) never depends on history.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace winnow {

/// splitmix64's finaliser: a bijection of 64-bit words that passes the usual statistical tests.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// A stream of random numbers. Copies continue independently: the position is part of the value.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed, std::uint64_t stream = 0)
      : key_(mix64(seed ^ mix64(stream))) {}

  constexpr std::uint64_t bits() { return mix64(key_ + 0x9E3779B97F4A7C15ULL * ++counter_); }
  /// Uniform in [0, 1).
  constexpr double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Standard normal (Box-Muller).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace winnow
