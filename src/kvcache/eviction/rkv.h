// The constants of R-KV: values of the paper and the authors' code.
#pragma once

namespace winnow::kvcache {

inline constexpr int kRkvNeighbours = 3;  // on each side: a kernel of 7
inline constexpr float kRkvLambda = 0.1F;
inline constexpr float kRkvSimilar = 0.5F;

}  // namespace winnow::kvcache
