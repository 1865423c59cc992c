// What Expected Attention counts: values of KVPress.
#pragma once

#include "kvcache/rule.h"

namespace winnow::kvcache {

inline constexpr int kExpectedSinks = 4;  // kept; their queries are atypical and not counted
inline constexpr int kFuturePositions = 512;

/// Whether the query at `position` counts.
inline bool counts_query(const Rule& rule, int position) {
  return rule.prompt_tokens > rule.budget && position >= kExpectedSinks &&
         position < rule.prompt_tokens;
}

}  // namespace winnow::kvcache
