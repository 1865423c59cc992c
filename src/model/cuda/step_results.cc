#include "model/cuda/step_results.h"

#include <algorithm>
#include <atomic>

namespace winnow::model::cuda {

void wait_for_tokens(std::span<std::int32_t> tokens, const winnow::cuda::Stream& stream) {
  constexpr int kLooks = 100000;  // between two at the stream, which might have failed
  const auto chosen = [](std::int32_t& token) {
    return std::atomic_ref(token).load(std::memory_order_acquire) != kPending;
  };
  for (int looks = 0; !std::ranges::all_of(tokens, chosen); ++looks) {
    if (looks % kLooks == kLooks - 1 && cudaStreamQuery(stream.get()) != cudaErrorNotReady) {
      stream.synchronize();
      return;
    }
  }
}

}  // namespace winnow::model::cuda
