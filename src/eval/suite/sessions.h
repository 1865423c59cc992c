// Whether a session that was saved and resumed, or forked, continues unchanged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/llm_load.h"

namespace winnow::eval {

/// Greedy answers to one prompt that is read turn by turn.
struct SessionAnswers {
  std::vector<std::int32_t> straight;  // without interruption
  std::vector<std::int32_t> resumed;   // saved after every turn, dropped and restored
  std::vector<std::int32_t> forked;    // by a fork, after its origin has read something else

  [[nodiscard]] bool agree() const { return straight == resumed && straight == forked; }
};

/// Answers of up to `max_tokens` tokens. `turn_ends`: ascending positions in the prompt, the last
/// one its end. All three read the same pieces one after another, so rounding is the same.
/// Throws Error when the cache is full.
SessionAnswers answer_in_sessions(const engine::LoadedModel& model,
                                  std::span<const std::int32_t> prompt,
                                  std::span<const std::size_t> turn_ends, int max_tokens);

}  // namespace winnow::eval
