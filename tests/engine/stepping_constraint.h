// A constraint for tests: the allowed tokens depend on the last one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "engine/request.h"

namespace winnow::engine::testing {

/// After `last`, allows tokens t with (t + last) % 3 == 0; after `most` tokens none.
class SteppingConstraint : public TokenConstraint {
 public:
  explicit SteppingConstraint(int most) : left_(most) {}
  [[nodiscard]] std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<SteppingConstraint>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override {
    std::ranges::fill(allowed, 0);
    for (std::size_t token = 0; left_ > 0 && token < allowed.size() * 64; ++token) {
      if (follows(static_cast<std::int32_t>(token), last_)) {
        allowed[token / 64] |= std::uint64_t{1} << (token % 64);
      }
    }
  }
  void accept(std::int32_t token) override {
    last_ = token;
    --left_;
  }
  static bool follows(std::int32_t token, std::int32_t last) { return (token + last) % 3 == 0; }

 private:
  std::int32_t last_ = 0;
  int left_;
};

/// Whether the tokens of an answer obey the constraint.
inline bool obeys(std::span<const std::int32_t> tokens) {
  std::int32_t last = 0;
  return std::ranges::all_of(tokens, [&last](std::int32_t token) {
    return SteppingConstraint::follows(token, std::exchange(last, token));
  });
}

}  // namespace winnow::engine::testing
