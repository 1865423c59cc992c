// The interface between general prefill attention's host code and its kernel.
#pragma once

#include "ops/cuda/general/prefill_attention.h"

namespace winnow::ops::cuda {

struct GeneralPrefillArguments {
  PrefillChunk chunk;
  AttentionLogits logits;
  std::size_t page_bytes;
  int head_dim;
  int kv_heads;
  int group;
};

void launch_general_prefill(EntryFormat format, const GeneralPrefillArguments& arguments,
                            cudaStream_t stream);

}  // namespace winnow::ops::cuda
