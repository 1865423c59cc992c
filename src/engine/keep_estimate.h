// Estimates a sequence's cache size and its answer's length from earlier sequences.
#pragma once

#include <cstddef>

#include "engine/request.h"

namespace winnow::engine {

/// Fits a line of entries over tokens, with most weight on recent observations: a window has a
/// fixed cost, and beyond it a model keeps a constant share of tokens. Bytes per entry come from
/// the observed totals; bytes grow by pages, and a line through them would hide the slope.
class KeepEstimate {
 public:
  /// Records the current cache of a sequence.
  void observe(const CacheUsage& usage);
  /// Records an answer of `tokens` tokens, which ended by itself or at its limit.
  void observe_answer(int tokens, bool by_itself);

  /// Bytes that a sequence of `tokens` will hold; 0 before the first observation.
  [[nodiscard]] double bytes_at(int tokens) const;
  /// Bytes of one more token.
  [[nodiscard]] double bytes_per_token() const;
  /// The mean length of answers without a limit: tokens of all answers over the number that ended
  /// by themselves (infinite if none did), so that one at its limit does not count as short.
  [[nodiscard]] double answer_tokens() const;

 private:
  // Weighted sums of 1, x, y, x^2 and x y over observations (x tokens, y live entries).
  double weight_ = 0.0;
  double x_ = 0.0;
  double y_ = 0.0;
  double xx_ = 0.0;
  double xy_ = 0.0;
  double bytes_ = 0.0;     // weighted sum
  double answered_ = 0.0;  // weighted tokens of answers
  double ended_ = 0.0;     // weight of answers that ended by themselves
};

}  // namespace winnow::engine
