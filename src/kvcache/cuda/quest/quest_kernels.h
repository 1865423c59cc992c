// The interface between the host side of Quest and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "kvcache/cuda/cache_view.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// Tokens whose queries choose pages: one of each of `batch` sequences in slots[batch] (device
/// memory), whose lengths do not include it yet. If `slots` is null: `batch` consecutive tokens of
/// the sequence in `slot`, the first at `position`.
struct QuestTokens {
  int batch = 0;
  const std::int32_t* slots = nullptr;
  int slot = 0;
  int position = 0;
};

/// A layer of the cache that follows the rule.
struct QuestLayer {
  int index = 0;
  int kv_heads = 0;
  int group = 0;

  [[nodiscard]] constexpr int heads() const { return kv_heads * group; }
};

/// The chosen pages. There is a row for each token and query head of a layer.
struct QuestChoice {
  std::uint32_t* pages = nullptr;  // [rows, stride]
  float* bounds = nullptr;         // [rows, stride] scratch
  std::size_t stride = 0;
  std::int32_t* entries = nullptr;  // [rows] entries on the chosen pages
  std::int32_t* planned = nullptr;  // [rows] `entries` less 1
  float* queries = nullptr;         // [rows, head_dim]: bf16 queries in float
  int page_entries = 0;             // per page of the method
  // If there is a window (null if not), which every query reads:
  std::uint32_t* window_pages = nullptr;  // [rows, CacheView::window_stride]
  std::int32_t* lengths = nullptr;        // [tokens] before each token
};

/// Updates the bounds of the archive pages that may have changed by `tokens` tokens of each
/// sequence, beginning with `first`. Their entries are in the cache.
void launch_renew_bounds(ops::EntryFormat format, int head_dim, const CacheView& cache,
                         const QuestLayer& layer, const QuestTokens& first, int tokens,
                         cudaStream_t stream);

/// Without a window: computes the number of entries that each row's query will read.
void launch_count_chosen(const CacheView& cache, int heads, const QuestTokens& tokens,
                         const QuestChoice& choice, cudaStream_t stream);

/// Chooses the pages with the highest bounds, without a window the last page, too. queries [batch,
/// heads * head_dim].
void launch_choose_pages(int head_dim, const CacheView& cache, const QuestLayer& layer,
                         const QuestTokens& tokens, const float* queries, const QuestChoice& choice,
                         cudaStream_t stream);
void launch_choose_pages(int head_dim, const CacheView& cache, const QuestLayer& layer,
                         const QuestTokens& tokens, const bf16* queries, const QuestChoice& choice,
                         cudaStream_t stream);

/// Counts the distinct entries that the queries of each KV head read, after pages are chosen. reads
/// [batch, kv_heads].
void launch_count_reads(const CacheView& cache, const QuestLayer& layer, const QuestTokens& tokens,
                        const QuestChoice& choice, std::int32_t* reads, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
