// Between the host's side of appending and attending, and its kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/step.h"
#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::kvcache::cuda {

struct TokenArguments {
  ops::cuda::DecodeArguments attention;
  CacheView cache;
  Projection projection;
  DecodeAppend step;
  int first_block = 0;  // of the launch: blocks that take tokens come first, then those of runs
};

/// Warps of the kernel that the device can hold at once.
int resident_token_workers(ops::EntryFormat format, int head_dim, int group);

/// Takes a token of each sequence and attends, each row in parts.
void launch_token_attention(ops::EntryFormat format, int head_dim, TokenArguments arguments,
                            cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
