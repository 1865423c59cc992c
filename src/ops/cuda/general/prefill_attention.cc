#include "ops/cuda/general/prefill_attention.h"

#include "base/error.h"
#include "ops/cuda/general/prefill_attention_kernels.h"

namespace winnow::ops::cuda {

void general_prefill_attention(const DevicePageLayout& layout, int kv_heads, int group,
                               const AttentionLogits& logits, const PrefillChunk& chunk,
                               cudaStream_t stream) {
  require_valid(kv_heads, group, chunk);
  launch_general_prefill(layout.format(),
                         {chunk, logits, layout.page_bytes(), layout.head_dim(), kv_heads, group},
                         stream);
}

}  // namespace winnow::ops::cuda
