// Prefill attention on the device: a chunk of consecutive query tokens over the archive and a dense
// band.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "ops/cuda/pages/kv_page.h"

namespace winnow::ops::cuda {

/// One sequence's chunk of T consecutive tokens in one layer; all pointers to device memory. Query
/// t sees the first archive_counts[h][t] archive entries of its KV head h and, of the band (the
/// `lead` entries before the chunk, then the chunk itself), entries [max(0, lead + t - window),
/// lead + t].
struct PrefillChunk {
  const bf16* query = nullptr;  // [T, kv_heads * group * head_dim], after RoPE
  bf16* out = nullptr;          // the same shape
  int tokens = 0;               // T
  int first_out = 0;            // rows of `out` before this one are not needed
  int lead = 0;
  int window = 0;  // may be arbitrarily large: plain causal attention
  /// The band as codes of the cache's format, entry after entry: [kv_heads, band_stride, head_dim].
  const std::byte* band_keys = nullptr;
  const std::byte* band_values = nullptr;
  /// 8-bit formats: [kv_heads, 2, band_stride], of keys, then of values. entry = code * scale.
  const bf16* band_scales = nullptr;
  int band_stride = 0;  // >= lead + tokens
  /// The band holds 16-bit numbers instead of codes: bf16 with bf16 entries, otherwise half.
  bool band_in_16_bits = false;
  /// Archive pages, page p at pool + p * page_bytes: [kv_heads, archive_stride]. Slots past a count
  /// may contain anything.
  const std::byte* pool = nullptr;
  const std::uint32_t* archive_pages = nullptr;
  std::size_t archive_stride = 0;
  const std::int32_t* archive_counts = nullptr;  // [kv_heads, T], non-decreasing along the tokens
  int archive_most = std::numeric_limits<int>::max();  // no count is larger; a hint for speed
  /// prefill_scratch_bytes() of memory, aligned to 256: the entries in 16 bits, or the parts of
  /// rows.
  std::byte* scratch = nullptr;
};

/// Throws Error for arguments that no kernel supports.
void require_valid(int kv_heads, int group, const PrefillChunk& chunk);

/// Scratch for a chunk whose band has `band_entries` (lead + T) entries and whose page table has
/// `archive_stride` columns.
std::size_t prefill_scratch_bytes(const DevicePageLayout& layout, int kv_heads, int band_entries,
                                  std::size_t archive_stride);

/// `best` is the fastest for the device and the chunk: split-K for a few tokens, else `gathered`,
/// the device's fastest over rows that are gathered first; `portable` does that anywhere.
enum class PrefillKernel { best, gathered, portable };

/// out = softmax(scale * query . keys) values over the entries that each query sees, with `group`
/// query heads per KV head; requires has_own_kernels(). If entries are rotated (q4), queries must
/// be, and outputs are rotated back. Sums and exponentials are in float; operands of products have
/// 16 bits: bf16 entries unchanged, 8-bit entries as code * scale in half precision (so they must
/// be below 65,504), weights in the entries' type. Nothing waits for the host.
void prefill_attention(const DevicePageLayout& layout, int kv_heads, int group, float scale,
                       const PrefillChunk& chunk, cudaStream_t stream,
                       PrefillKernel kernel = PrefillKernel::best);

}  // namespace winnow::ops::cuda
