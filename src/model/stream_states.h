// What a step hands out of the residual stream for a head that drafts, and what such a head takes.
#pragma once

#include <algorithm>
#include <span>

#include "ops/matrix.h"

namespace winnow::model {

/// Receives the residual stream of a sequence's tokens, after so many layers each: from 0, the
/// embeddings, to all n of them; n + 1: behind the final norm, too.
struct StreamStates {
  std::span<const int> after = {};
  ops::Matrix<float> out = {};  // [T, after.size() * hidden], side by side; no rows: none is wanted

  /// Whether it wants the stream of all tokens after this many layers or more.
  [[nodiscard]] bool reaches(int layers) const {
    return out.rows > 0 && std::ranges::any_of(after, [&](int a) { return a >= layers; });
  }
};

/// What a head takes beside a sequence's next tokens (DraftHeadSpec).
struct HeadInput {
  ops::Matrix<const float> states = {};  // [T, inputs()], or [T, hidden]
  bool own = false;                      // the head's own, else the target's
};

}  // namespace winnow::model
