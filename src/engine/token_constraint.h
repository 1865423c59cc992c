// Constraints on the tokens of an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace winnow::engine {

/// Queried before every token of an answer and informed of it afterwards. One per sample.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// A copy for another sample that continues from here.
  [[nodiscard]] virtual std::unique_ptr<TokenConstraint> fork() const = 0;
  /// Writes a bit for every token of the vocabulary (ops::mask_words()): whether it may come next.
  virtual void allow(std::span<std::uint64_t> allowed) const = 0;
  /// Informs the constraint that `token` was chosen.
  virtual void accept(std::int32_t token) = 0;
};

}  // namespace winnow::engine
