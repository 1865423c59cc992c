#include "model/cuda/step_tokens.h"

#include <algorithm>
#include <atomic>

namespace winnow::model::cuda {

void StepTokens::expect(std::size_t count) {
  expected_ = count;
  std::ranges::fill(tokens_.span().first(count), kPending);
}

std::span<const std::int32_t> StepTokens::wait(const winnow::cuda::Stream& stream) const {
  constexpr int kLooks = 100000;  // between two checks of the stream, which might have failed
  const std::span tokens = tokens_.span().first(expected_);
  const auto is_there = [](std::int32_t& token) {
    return std::atomic_ref(token).load(std::memory_order_acquire) != kPending;
  };
  for (int looks = 0; !std::ranges::all_of(tokens, is_there);) {
    if (++looks == kLooks) {
      looks = 0;
      if (cudaStreamQuery(stream.get()) != cudaErrorNotReady) {
        stream.synchronize();
        break;
      }
    }
  }
  return tokens;
}

}  // namespace winnow::model::cuda
