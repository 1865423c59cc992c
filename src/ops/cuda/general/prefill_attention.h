// Prefill attention on the device for every head dimension, group and kind of logits: the fallback
// where prefill_attention() has no kernel.
#pragma once

#include "ops/cuda/general/attention_logits.h"
#include "ops/cuda/prefill/prefill_attention.h"

namespace winnow::ops::cuda {

/// out = softmax(logits) values over the entries that each query of the chunk sees (PrefillChunk;
/// its scratch is not used). If entries are rotated (q4), queries must be, and outputs are rotated
/// back. Products and sums are in float, from unrounded entries. Nothing waits for the host.
void general_prefill_attention(const DevicePageLayout& layout, int kv_heads, int group,
                               const AttentionLogits& logits, const PrefillChunk& chunk,
                               cudaStream_t stream);

}  // namespace winnow::ops::cuda
