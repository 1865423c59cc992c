// Truncation rules other than top-k, top-p and min-p. Removed tokens become -infinity.
#pragma once

#include <span>

#include "engine/logit_rules.h"

namespace winnow::engine {

/// Locally typical sampling: keeps the tokens whose surprise is nearest to the distribution's
/// entropy, as few as together have at least the probability `p`.
void keep_typical(double p, double temperature, std::span<float> logits);

/// Applies XTC: removes all tokens above the threshold except the least probable one.
void exclude_top_choices(double threshold, double temperature, std::span<float> logits);

/// Mirostat's state for one sample.
class Mirostat {
 public:
  explicit Mirostat(const MirostatRule& rule) : rule_(rule), most_(2.0 * rule.tau) {}

  /// Removes tokens whose surprise is too high.
  void truncate(double temperature, std::span<float> logits) const;
  /// Updates the state after `token` was drawn from the tokens that truncate() left.
  void accept(std::size_t token, double temperature, std::span<const float> logits);

 private:
  MirostatRule rule_;
  double most_;  // mu: the limit of surprise in bits
};

}  // namespace winnow::engine
