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
  /// Tokens of an answer, as long as none has ended: many requests have no limit but the context,
  /// and a server that expected such answers would admit only few at first.
  static constexpr double kFirstGuess = 2048.0;

  /// Records the current cache of a sequence.
  void observe(const CacheUsage& usage);
  /// Records an answer of `tokens` tokens, which ended by itself or at its limit.
  void observe_answer(int tokens, bool by_itself);

  /// Bytes that a sequence of `tokens` will hold; 0 before the first observation.
  [[nodiscard]] double bytes_at(int tokens) const;
  /// Bytes of one more token.
  [[nodiscard]] double bytes_per_token() const;
  /// The mean length of answers without a limit: tokens of all answers over the number that ended
  /// by themselves, so that one at its limit does not count as short. Before the first answer,
  /// kFirstGuess.
  [[nodiscard]] double answer_tokens() const;

 private:
  // Weighted sums of 1, x, y, x^2 and x y over observations (x tokens, y live entries).
  double weight_ = 0.0;
  double x_ = 0.0;
  double y_ = 0.0;
  double xx_ = 0.0;
  double xy_ = 0.0;
  double bytes_ = 0.0;  // weighted sum
  // The guess has the weight of a tenth of an answer.
  double answered_ = 0.1 * kFirstGuess;  // weighted tokens of answers
  double ended_ = 0.1;                   // weight of answers that ended by themselves
};

}  // namespace winnow::engine
