// Estimates the cache that a sequence will take from earlier sequences.
#pragma once

#include <cstddef>

#include "engine/request.h"

namespace winnow::engine {

/// A line of bytes over tokens, fitted to observations with most weight on recent ones: a window
/// costs the same at any length, and beyond it a model keeps a constant share of tokens.
class KeepEstimate {
 public:
  /// A sequence's cache at this moment.
  void observe(const CacheUsage& usage);
  /// An answer ended after `tokens` tokens.
  void observe_answer(int tokens);

  /// Bytes that a sequence of `tokens` will hold; 0 while nothing is known.
  [[nodiscard]] double bytes_at(int tokens) const;
  /// The expected length of an answer of at most `most` tokens.
  [[nodiscard]] int answer_tokens(int most) const;

 private:
  // Weighted sums of 1, x, y, x^2 and x y over observations (x tokens, y bytes).
  double weight_ = 0.0;
  double x_ = 0.0;
  double y_ = 0.0;
  double xx_ = 0.0;
  double xy_ = 0.0;
  double answers_ = 0.0;  // weight of observed answers
  double answer_sum_ = 0.0;
};

}  // namespace winnow::engine
