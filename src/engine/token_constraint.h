// What the tokens of an answer may be.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace winnow::engine {

/// Asked before every token of an answer, told every token after. One per sample.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// For another sample that goes on from here.
  [[nodiscard]] virtual std::unique_ptr<TokenConstraint> fork() const = 0;
  /// Makes -infinity of the logits [vocabulary] of all tokens that must not come next.
  virtual void mask(std::span<float> logits) const = 0;
  /// `token` came next.
  virtual void accept(std::int32_t token) = 0;
};

}  // namespace winnow::engine
