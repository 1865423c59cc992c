// Random orders and choices.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

/// A number from 0 to `count` - 1.
inline std::size_t draw_index(std::size_t count, Random& random) {
  return static_cast<std::size_t>(random.uniform() * static_cast<double>(count));
}

/// Shuffles; every order is equally likely.
template <class Value>
void shuffle(std::span<Value> values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[draw_index(i, random)]);
  }
}

/// `count` distinct numbers below `limit`, in ascending order; `count` is at most `limit`.
inline std::vector<std::size_t> choose(std::size_t count, std::size_t limit, Random& random) {
  std::set<std::size_t> chosen;
  while (chosen.size() < count) {
    chosen.insert(draw_index(limit, random));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace winnow::eval
