#include "ops/cuda/prefill/prefill_attention.h"

#include <algorithm>
#include <numbers>

#include "base/error.h"
#include "ops/cuda/hopper.h"
#include "ops/cuda/prefill/prefill_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
// With more query rows of a KV head, gathering entries once for all tiles is faster (measured).
constexpr int most_split_rows(int head_dim) {
  return (head_dim == 64 ? 4 : 2) * kLeastTileRows;
}

constexpr std::size_t round_up(std::size_t x, std::size_t to) {
  return (x + to - 1) / to * to;
}

GatheredRows rows_for(int band_entries, std::size_t archive_stride, std::byte* memory) {
  const auto band_rows =
      round_up(static_cast<std::size_t>(band_entries + kSpareRows), kPageEntries);
  return {memory, static_cast<int>(archive_stride) * kPageEntries, static_cast<int>(band_rows)};
}

// next_tile and tile_order precede the gathered rows; their tiles have at least 16 tokens.
std::size_t order_bytes(int band_entries, int kv_heads) {
  constexpr int kLeastTokens = kLeastTileRows / kMostOwnGroup;
  const int tiles = (band_entries / kLeastTokens + 1) * kv_heads;
  return kAlignment + round_up(static_cast<std::size_t>(tiles) * sizeof(std::int32_t), kAlignment);
}

// Memory for the softmax of all parts' rows, and for all of it.
std::size_t softmax_bytes(int head_dim) {
  const auto rows = static_cast<std::size_t>(split_blocks(head_dim) * kLeastTileRows);
  return round_up(rows * sizeof(float2), kAlignment);
}
std::size_t split_bytes(int head_dim) {
  const auto values = static_cast<std::size_t>(split_blocks(head_dim) * kLeastTileRows * head_dim);
  return softmax_bytes(head_dim) + values * sizeof(float);
}

// As many parts of each tile as keep the device busy, of at least a block of entries each if none
// was evicted.
SplitParts parts_for(int head_dim, int tiles, const PrefillChunk& chunk) {
  const auto room = std::min<std::size_t>(chunk.archive_stride * kPageEntries,
                                          static_cast<std::size_t>(chunk.archive_most));
  const int seen = static_cast<int>(room) + std::min(chunk.lead, chunk.window) + chunk.tokens;
  const int most = std::min(kMostSplitParts, (seen + kTileBlock - 1) / kTileBlock);
  return {.count = std::clamp(split_blocks(head_dim) / tiles, 1, most),
          .softmax = reinterpret_cast<float2*>(chunk.scratch),
          .out = reinterpret_cast<float*>(chunk.scratch + softmax_bytes(head_dim))};
}

}  // namespace

void require_valid(int kv_heads, int group, const PrefillChunk& chunk) {
  require(kv_heads >= 1 && group >= 1 && chunk.tokens >= 1 && chunk.lead >= 0 && chunk.window >= 0,
          "prefill attention: {} KV heads of {} query heads each, {} tokens after {}, window {}",
          kv_heads, group, chunk.tokens, chunk.lead, chunk.window);
  require(chunk.first_out >= 0 && chunk.first_out < chunk.tokens,
          "prefill attention: rows from {} on are wanted of {}", chunk.first_out, chunk.tokens);
  require(chunk.band_stride >= chunk.lead + chunk.tokens,
          "prefill attention: band of {} entries, room for {}", chunk.lead + chunk.tokens,
          chunk.band_stride);
}

std::size_t prefill_scratch_bytes(const DevicePageLayout& layout, int kv_heads, int band_entries,
                                  std::size_t archive_stride) {
  const GatheredRows rows = rows_for(band_entries, archive_stride, nullptr);
  const int slabs = (layout.head_dim() + kSlabChannels - 1) / kSlabChannels;
  const std::size_t gathered = order_bytes(band_entries, kv_heads) +
                               static_cast<std::size_t>(kv_heads * 2 * slabs) * rows.slab_bytes();
  return std::max(gathered, split_bytes(layout.head_dim()));
}

void prefill_attention(const DevicePageLayout& layout, int kv_heads, int group, float scale,
                       const PrefillChunk& chunk, cudaStream_t stream, PrefillKernel kernel) {
  require_valid(kv_heads, group, chunk);
  require(has_own_kernels(layout.head_dim(), group),
          "prefill attention: no kernel for {} query heads per KV head of head dimension {}", group,
          layout.head_dim());
  const int wanted = chunk.tokens - chunk.first_out;
  const bool splits =
      kernel == PrefillKernel::best && wanted * group <= most_split_rows(layout.head_dim());
  kernel = splits || !has_wgmma()          ? PrefillKernel::portable
           : kernel == PrefillKernel::best ? PrefillKernel::gathered
                                           : kernel;
  const int tile_tokens = prefill_tile_rows(layout.head_dim(), kernel) / group;
  const int tiles = (wanted + tile_tokens - 1) / tile_tokens * kv_heads;
  const int band = chunk.lead + chunk.tokens;
  PrefillArguments arguments{
      .chunk = chunk,
      .rows = rows_for(band, chunk.archive_stride, chunk.scratch + order_bytes(band, kv_heads)),
      .page_bytes = layout.page_bytes(),
      .next_tile = reinterpret_cast<std::int32_t*>(chunk.scratch),
      .tile_order = reinterpret_cast<std::int32_t*>(chunk.scratch + kAlignment),
      .tile_tokens = tile_tokens,
      .tiles = tiles,
      .kv_heads = kv_heads,
      .group = group,
      .scale = scale * std::numbers::log2e_v<float>,
      .parts = {}};
  if (splits) {
    arguments.parts = parts_for(layout.head_dim(), tiles, chunk);
    launch_split_prefill(layout.format(), layout.head_dim(), arguments, stream);
  } else {
    launch_gather(layout, arguments, stream);
    (kernel == PrefillKernel::gathered ? launch_prefill_sm90 : launch_prefill)(
        layout.format(), layout.head_dim(), arguments, stream);
  }
  if (layout.host().rotated()) {
    const int vectors = kv_heads * group;  // per token
    bf16* const out =
        chunk.out + static_cast<std::ptrdiff_t>(chunk.first_out) * vectors * layout.head_dim();
    launch_rotate_back(layout.head_dim(), out, wanted * vectors, stream);
  }
}

}  // namespace winnow::ops::cuda
