// DMC, a chunk of one sequence, in three kernels: queries, keys and values in float with their
// decisions; which tokens close a segment; and the running averages, one warp per segment.
#include "base/cuda/device.h"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/block_scan.cuh"
#include "kvcache/cuda/append/open_entry.cuh"
#include "kvcache/cuda/append/page_table.cuh"
#include "kvcache/cuda/append/projection.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kWarpsPerBlock = 8;

// A head's part of the chunk's scratch memory.
template <int D>
struct HeadMerges {
  float* keys;    // [tokens, dim]
  float* values;  // [tokens, dim]
  float* omegas;  // [tokens]
  float* before;  // [2 dim + 1] the open entry before the chunk: key, value, weight
  std::uint8_t* decisions;
  std::int32_t* seen;
  [[no_unique_address]] ops::cuda::HeadDim<D> dim;

  __device__ HeadMerges(const BandView& band, const PrefillAppend& chunk, int head, int head_dim)
      : dim(head_dim) {
    const std::size_t tokens = static_cast<std::size_t>(chunk.tokens);
    const std::size_t first = head * tokens;
    keys = band.merge_keys + first * dim;
    values = band.merge_values + first * dim;
    omegas = band.omegas + first;
    before = band.open_before + head * (2 * dim + 1);
    decisions = band.decisions + first;
    seen = band.seen + first;
  }
};

template <class Format, int D>
__global__ void __launch_bounds__(kMostAppendThreads<D>)
    project_kernel(Projection projection, PrefillAppend chunk, BandView band, int head_dim) {
  const int token = blockIdx.x;
  const int head = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int queries = projection.query_warps();
  const std::size_t heads = projection.kv_heads * group;
  const int position = chunk.length + token;
  const ops::cuda::HeadDim<D> dim(head_dim);
  const HeadMerges<D> to(band, chunk, head, head_dim);
  __shared__ float omega;
  ops::cuda::HeadVector<D> vector(dim, width_of(projection, dim));
  const bool decision = project<D>(projection, QkvRow(chunk.qkv, row_of(projection, token, dim)),
                                   token, position, chunk.layer, head, vector, &omega)
                            .taken;
  if (threadIdx.x == 0) {
    to.decisions[token] = decision && position > 0 ? 1 : 0;
    to.omegas[token] = omega;
  }
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  if (warp < queries) {
    vector.store(chunk.queries + (token * heads + head * group + warp) * dim);
  } else {
    vector.store((warp == queries ? to.keys : to.values) + static_cast<std::size_t>(token) * dim);
  }
}

// A block per head. Token t sees `seen` archived segments; a token that does not merge closes the
// segment before it.
template <int D>
__global__ void __launch_bounds__(kScanThreads)
    segments_kernel(CacheView cache, PrefillAppend chunk, BandView band) {
  const int head = blockIdx.x;
  const std::size_t row = cache.row(chunk.layer, chunk.slot, head);
  const HeadMerges<D> merges(band, chunk, head, cache.head_dim);
  const int dim = merges.dim;
  const int archived = cache.archive_counts[row];
  int count = 0;
  for (int first = 0; first < chunk.tokens; first += kScanThreads) {
    const int token = first + threadIdx.x;
    const bool closes =
        token < chunk.tokens && chunk.length + token > 0 && merges.decisions[token] == 0;
    int total = 0;
    const int through = block_scan(closes ? 1 : 0, total);
    if (token < chunk.tokens) {
      merges.seen[token] = archived + count + through;
    }
    count += total;
  }
  extend(cache, cache.archive_pages + row * cache.archive_stride, archived, count);
  for (int d = threadIdx.x; d < dim; d += kScanThreads) {
    merges.before[d] = cache.open_keys[row * dim + d];
    merges.before[dim + d] = cache.open_values[row * dim + d];
  }
  if (threadIdx.x == 0) {
    merges.before[2 * dim] = cache.open_weights[row];
    cache.archive_counts[row] = archived + count;
  }
}

// An open entry, held by a warp.
template <int D>
struct OpenEntry {
  ops::cuda::HeadVector<D> key;
  ops::cuda::HeadVector<D> value;
  float weight;

  __device__ OpenEntry(const float* key_from, const float* value_from, float weight,
                       ops::cuda::HeadDim<D> dim)
      : key(dim), value(dim), weight(weight) {
    key.load(key_from, nullptr);
    value.load(value_from, nullptr);
  }

  __device__ void merge(const OpenEntry& token) {
    const float share = share_of(weight, token.weight);
    OpenEntry before = *this;
    *this = token;
    key.mix(before.key, share);
    value.mix(before.value, share);
    weight = __fadd_rn(before.weight, token.weight);
  }

  template <class Format>
  __device__ void archive(const CacheView& cache, std::size_t row, int slot) const {
    const EntryPlace<typename Format::Code, D> place(
        cache, cache.archive_pages + row * cache.archive_stride, slot);
    store_half<Format>(key, place, true);
    store_half<Format>(value, place, false);
  }
};

// A warp per token that begins a segment, and one for the chunk's first token.
template <class Format, int D>
__global__ void average_kernel(CacheView cache, PrefillAppend chunk, BandView band) {
  const int head = blockIdx.y;
  int token = blockIdx.x * kWarpsPerBlock + threadIdx.x / 32;
  const HeadMerges<D> from(band, chunk, head, cache.head_dim);
  const int dim = from.dim;
  if (token >= chunk.tokens || (token > 0 && from.decisions[token] != 0)) {
    return;
  }
  const std::size_t row = cache.row(chunk.layer, chunk.slot, head);
  const auto entry = [&](int t) {
    const std::size_t at = static_cast<std::size_t>(t) * dim;
    return OpenEntry<D>(from.keys + at, from.values + at, from.omegas[t], from.dim);
  };
  OpenEntry<D> open = entry(token);
  if (token == 0 && chunk.length > 0) {
    OpenEntry<D> before(from.before, from.before + dim, from.before[2 * dim], from.dim);
    if (from.decisions[0] != 0) {
      before.merge(open);
      open = before;
    } else {
      before.template archive<Format>(cache, row, from.seen[0] - 1);
    }
  }
  // Queries see the open entry in 16 bits, like everything in prefill.
  const auto show = [&] {
    const std::size_t at = (static_cast<std::size_t>(head) * band.stride + token) * dim;
    open.key.template store_16_bits<Format>(band.keys + 2 * at);
    open.value.template store_16_bits<Format>(band.values + 2 * at);
  };
  show();
  for (++token; token < chunk.tokens && from.decisions[token] != 0; ++token) {
    open.merge(entry(token));
    show();
  }
  if (token < chunk.tokens) {
    open.template archive<Format>(cache, row, from.seen[token] - 1);
    return;
  }
  open.key.store(cache.open_keys + row * dim);
  open.value.store(cache.open_values + row * dim);
  if (threadIdx.x % 32 == 0) {
    cache.open_weights[row] = open.weight;
  }
}

template <class Format, int D>
void launch(const CacheView& cache, const Projection& projection, const PrefillAppend& chunk,
            const BandView& band, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(projection.kv_heads);
  const auto blocks = static_cast<unsigned>((chunk.tokens + kWarpsPerBlock - 1) / kWarpsPerBlock);
  project_kernel<Format, D>
      <<<dim3(chunk.tokens, heads), (projection.query_warps() + 2) * 32, 0, stream>>>(
          projection, chunk, band, cache.head_dim);
  winnow::cuda::check_launch("project a chunk");
  segments_kernel<D><<<heads, kScanThreads, 0, stream>>>(cache, chunk, band);
  winnow::cuda::check_launch("find segments");
  average_kernel<Format, D>
      <<<dim3(blocks, heads), kWarpsPerBlock * 32, 0, stream>>>(cache, chunk, band);
  winnow::cuda::check_launch("average segments");
}

}  // namespace

void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const PrefillAppend& chunk,
                       const BandView& band, cudaStream_t stream) {
  ops::cuda::with_any_shape(
      format, head_dim, has_own_append(head_dim, projection), [&]<ops::EntryFormat kType, int D>() {
        launch<ops::cuda::FormatOf<kType>, D>(cache, projection, chunk, band, stream);
      });
}

}  // namespace winnow::kvcache::cuda
