// Ways to leave out tokens that are neither top-k, top-p nor min-p. What is left out becomes
// -infinity.
#pragma once

#include <span>

#include "engine/logit_rules.h"

namespace winnow::engine {

/// Locally typical sampling: keeps the tokens whose surprise is nearest to the distribution's
/// entropy, as few as have at least the probability `p` together.
void keep_typical(double p, double temperature, std::span<float> logits);

/// XTC, given that it takes place: of the tokens with at least the threshold's probability keeps
/// the least probable one.
void exclude_top_choices(double threshold, double temperature, std::span<float> logits);

/// Mirostat over the tokens of one sample.
class Mirostat {
 public:
  explicit Mirostat(const MirostatRule& rule) : rule_(rule), most_(2.0 * rule.tau) {}

  /// Leaves out tokens that would surprise too much.
  void truncate(double temperature, std::span<float> logits) const;
  /// `token` was drawn from what truncate() left.
  void accept(std::size_t token, double temperature, std::span<const float> logits);

 private:
  MirostatRule rule_;
  double most_;  // surprise in bits: mu
};

}  // namespace winnow::engine
