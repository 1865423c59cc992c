// Estimates from earlier sequences the cache that one will take, and how long its answer will be.
#pragma once

#include <cstddef>

#include "engine/request.h"

namespace winnow::engine {

/// A line of entries over tokens, fitted to observations with most weight on recent ones: a window
/// costs the same at any length, and beyond it a model keeps a constant share of tokens. An entry
/// takes its share of the bytes observed, which grow by pages and would hide the slope.
class KeepEstimate {
 public:
  /// A sequence's cache at this moment.
  void observe(const CacheUsage& usage);
  /// An answer of `tokens` tokens, which ended by itself or else at its limit.
  void observe_answer(int tokens, bool by_itself);

  /// Bytes that a sequence of `tokens` will hold; 0 while nothing is known.
  [[nodiscard]] double bytes_at(int tokens) const;
  /// Bytes of one token more.
  [[nodiscard]] double bytes_per_token() const;
  /// The mean length of answers without a limit: tokens of all answers over the ends among them,
  /// so one that met its limit does not count as short. Infinite while none ended by itself.
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
  double ended_ = 0.0;     // weight of those that ended by themselves
};

}  // namespace winnow::engine
