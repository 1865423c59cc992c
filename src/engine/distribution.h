// The distribution that a temperature makes of logits, for rules that look at probabilities.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace winnow::engine {

/// The logit of a token that cannot be drawn.
inline constexpr float kLeftOut = -std::numeric_limits<float>::infinity();

/// A token that can be drawn.
struct Choice {
  std::size_t token;
  double probability;
};

/// The order of choices: the most probable first, the smaller id first among equals.
constexpr bool comes_before(const Choice& a, const Choice& b) {
  return a.probability > b.probability || (a.probability == b.probability && a.token < b.token);
}

/// softmax(logits / temperature). Reads the logits once; probabilities are computed when asked for.
/// The logits must outlive it and not change. NaN cannot be drawn.
class Distribution {
 public:
  Distribution(double temperature, std::span<const float> logits);

  /// The number of tokens that can be drawn.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool may_draw(float logit) const { return weight(logit) > 0.0; }
  [[nodiscard]] double probability(float logit) const { return weight(logit) / sum_; }
  [[nodiscard]] double largest_probability() const { return 1.0 / sum_; }
  /// In bits.
  [[nodiscard]] double entropy() const;
  /// Every choice with a probability of at least `least`, and perhaps some with hardly less, by
  /// token id.
  [[nodiscard]] std::vector<Choice> choices(double least) const;

 private:
  // The logarithm of the probability relative to the largest one.
  [[nodiscard]] double exponent(float logit) const {
    return (double{logit} - double{largest_}) / temperature_;
  }
  [[nodiscard]] double weight(float logit) const;

  std::span<const float> logits_;
  double temperature_;
  float largest_;
  std::size_t size_ = 0;
  double sum_ = 0.0;        // of weights
  double exponents_ = 0.0;  // sum of weight times exponent
};

}  // namespace winnow::engine
