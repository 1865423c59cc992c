// Chooses tokens from logits on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/sampling.h"

namespace winnow::ops::cuda {

/// How the token of a row of logits is chosen.
struct SampledRow {
  TokenRule rule;
  /// With a penalty: a bit per token of the vocabulary, set if it counts as seen, in device
  /// memory; and one more token that counts as seen, whose bit is then set.
  std::uint32_t* seen = nullptr;
  std::int32_t newest = 0;
  /// Optional: a bit per token, set if it may be chosen, in whole 64-bit words of device memory,
  /// which are read after the kernel's predecessors are complete.
  const std::uint32_t* allowed = nullptr;
};

/// tokens[i] = the choice of rows[i] from logits [count, vocab]: the token of ops::sample_token()
/// for the same logits. rows [count] is in device or page-locked host memory and is read when the
/// kernel runs. Uses programmatic launch (base/cuda/launch.cuh). vocab is at most kMostTokens.
void sample_tokens(const float* logits, int count, int vocab, const SampledRow* rows,
                   std::int32_t* tokens, cudaStream_t stream);

/// Sets the bits of tokens [count] in `seen`.
void mark_tokens(std::uint32_t* seen, const std::int32_t* tokens, int count, cudaStream_t stream);

}  // namespace winnow::ops::cuda
