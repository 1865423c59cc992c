#include "model/cuda/seen_tokens.h"

#include "ops/cuda/sampling/sampling.h"

namespace winnow::model::cuda {

std::uint32_t* SeenTokens::mark(int slot, std::span<const std::int32_t> history,
                                const winnow::cuda::Stream& stream) {
  Bits& bits = bits_[slot];
  bits.words.ensure(words_);
  if (bits.marked == 0) {
    winnow::cuda::check(
        cudaMemsetAsync(bits.words.data(), 0, words_ * sizeof(std::uint32_t), stream.get()),
        "forget seen tokens");
  }
  const auto missing = history.subspan(bits.marked);
  if (missing.size() > 1) {
    tokens_.ensure(missing.size());
    winnow::cuda::check(cudaMemcpyAsync(tokens_.data(), missing.data(), missing.size_bytes(),
                                        cudaMemcpyHostToDevice, stream.get()),
                        "copy seen tokens to the device");
    ops::cuda::mark_tokens(bits.words.data(), tokens_.data(), static_cast<int>(missing.size()),
                           stream.get());
    stream.synchronize();  // tokens_ is reused
  }
  bits.marked = history.size();
  return bits.words.data();
}

void SeenTokens::forget(int slot) {
  if (const auto found = bits_.find(slot); found != bits_.end()) {
    found->second.marked = 0;
  }
}

}  // namespace winnow::model::cuda
