// A row of logits, as read by the blocks that choose its token.
#pragma once

#include <array>

#include "ops/cuda/sampling/sampling.h"

namespace winnow::ops::cuda {

class RowLogits {
 public:
  static constexpr int kVector = 4;
  using Vector = std::array<float, kVector>;

  __device__ RowLogits(const float* logits, int vocab, const SampledRow& row)
      : row_(row),
        lead_(static_cast<int>(reinterpret_cast<std::uintptr_t>(logits) / sizeof(float) % kVector)),
        end_(lead_ + vocab),
        vectors_(reinterpret_cast<const float4*>(logits - lead_)) {}

  /// Calls f(token, the logits of this token and the three after it, with the penalty) for the
  /// share of thread `first` of `threads`, in token order. There may be tokens outside the row at
  /// its ends. Their logits, and those of tokens that are not allowed, are NaN.
  template <class F>
  __device__ void each(int first, int threads, const F& f) const {
    constexpr int kAtOnce = 2;
#pragma unroll 1
    for (int at = first; at * kVector < end_; at += kAtOnce * threads) {
      float4 x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        x[i] = load(at + i * threads);
      }
      if (row_.rule.penalty != 1.0F) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          x[i] = penalized(at + i * threads, x[i]);
        }
      }
      if (row_.allowed != nullptr) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          x[i] =
              only_allowed((at + i * threads) * kVector - lead_, x[i], row_.allowed, end_ - lead_);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        f((at + i * threads) * kVector - lead_, Vector{x[i].x, x[i].y, x[i].z, x[i].w});
      }
    }
  }

 private:
  // The row may begin and end inside a vector.
  __device__ float4 load(int at) const {
    const int from = at * kVector;
    if (from >= lead_ && from + kVector <= end_) {
      return __ldg(vectors_ + at);
    }
    const auto value = [&](int i) {
      return i >= lead_ && i < end_ ? __ldg(reinterpret_cast<const float*>(vectors_) + i) : NAN;
    };
    return {value(from), value(from + 1), value(from + 2), value(from + 3)};
  }

  // Applies the penalty to seen tokens.
  __device__ float4 penalized(int at, const float4& x) const {
    const int token = at * kVector - lead_;
    const float penalty = row_.rule.penalty;
    return {penalized(token, x.x, penalty, row_.seen, row_.newest),
            penalized(token + 1, x.y, penalty, row_.seen, row_.newest),
            penalized(token + 2, x.z, penalty, row_.seen, row_.newest),
            penalized(token + 3, x.w, penalty, row_.seen, row_.newest)};
  }

  // The same operations and roundings as on the CPU. Rarely called: inlining is not worth its
  // size. Arguments by value: data behind a pointer is not in registers.
  static __device__ __noinline__ float penalized(int token, float x, float penalty,
                                                 const std::uint32_t* seen, int newest) {
    // Tokens outside the row are NaN: `seen` has no bits for them.
    if (isnan(x) || (token != newest && (seen[token / 32] >> (token % 32) & 1U) == 0)) {
      return x;
    }
    return x > 0.0F ? __fdiv_rn(x, penalty) : __fmul_rn(x, penalty);
  }

  // The bits of tokens from `token` on are in one word or two. Bits of tokens outside the row may
  // have any value: their logits are NaN either way.
  static __device__ __noinline__ float4 only_allowed(int token, float4 x,
                                                     const std::uint32_t* allowed, int vocab) {
    const int last = (vocab - 1) / 32;
    const int word = token >> 5;  // -1 before the row
    const std::uint32_t bits =
        __funnelshift_r(allowed[min(max(word, 0), last)], allowed[min(word + 1, last)], token & 31);
    return {(bits & 1U) != 0 ? x.x : NAN, (bits & 2U) != 0 ? x.y : NAN,
            (bits & 4U) != 0 ? x.z : NAN, (bits & 8U) != 0 ? x.w : NAN};
  }

  const SampledRow& row_;
  int lead_;               // floats of the first vector that precede the row
  int end_;                // end of the row, counted from there
  const float4* vectors_;  // 16-byte aligned
};

}  // namespace winnow::ops::cuda
