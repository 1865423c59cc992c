#include "ops/cuda/prefill_attention.h"

#include <numbers>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/prefill_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kCounterBytes = 256;  // before the gathered rows: next_tile

int round_up(int x, int to) {
  return (x + to - 1) / to * to;
}

GatheredRows rows_for(int band_entries, std::size_t archive_stride, std::byte* memory) {
  return {memory, static_cast<int>(archive_stride) * kPageEntries,
          round_up(band_entries + kSpareRows, kPageEntries)};
}

bool has_wgmma() {
  int device = 0;
  int major = 0;
  winnow::cuda::check(cudaGetDevice(&device), "current device");
  winnow::cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                      "compute capability");
  return major == 9;
}

void require_valid(int kv_heads, int group, const PrefillChunk& chunk) {
  constexpr int kMostGroup = 8;
  require(group >= 1 && group <= kMostGroup,
          "{} query heads per KV head are not supported on the device, expected 1 to {}", group,
          kMostGroup);
  require(kv_heads >= 1 && chunk.tokens >= 1 && chunk.lead >= 0 && chunk.window >= 0,
          "prefill attention: {} KV heads, {} tokens after {}, window {}", kv_heads, chunk.tokens,
          chunk.lead, chunk.window);
  require(chunk.band_stride >= chunk.lead + chunk.tokens,
          "prefill attention: band of {} entries, room for {}", chunk.lead + chunk.tokens,
          chunk.band_stride);
}

}  // namespace

std::size_t prefill_scratch_bytes(const DevicePageLayout& layout, int kv_heads, int band_entries,
                                  std::size_t archive_stride) {
  const GatheredRows rows = rows_for(band_entries, archive_stride, nullptr);
  const int slabs = (layout.head_dim() + kSlabChannels - 1) / kSlabChannels;
  return kCounterBytes + static_cast<std::size_t>(kv_heads * 2 * slabs) * rows.slab_bytes();
}

void prefill_attention(const DevicePageLayout& layout, int kv_heads, int group, float scale,
                       const PrefillChunk& chunk, cudaStream_t stream, PrefillKernel kernel) {
  require_valid(kv_heads, group, chunk);
  const PrefillArguments arguments{
      chunk,
      rows_for(chunk.lead + chunk.tokens, chunk.archive_stride, chunk.scratch + kCounterBytes),
      layout.page_bytes(),
      reinterpret_cast<std::int32_t*>(chunk.scratch),
      kv_heads,
      group,
      scale * std::numbers::log2e_v<float>};
  launch_gather(layout, arguments, stream);
  const bool portable = kernel == PrefillKernel::portable ||
                        (layout.head_dim() != 64 && layout.head_dim() != 128) || !has_wgmma();
  (portable ? launch_prefill : launch_prefill_sm90)(layout.format(), layout.head_dim(), arguments,
                                                    stream);
}

}  // namespace winnow::ops::cuda
