// Converts the entries that a chunk sees to the attention kernels' format: 16-bit
// numbers in contiguous rows. Each entry is converted once here and read by many tiles there.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_entries.cuh"
#include "ops/cuda/prefill/prefill_tile.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kBuckets = 1024;

// A page's worth of entries from `first` on: from `page`, or from the band if it is null.
// `entries` of them exist, counted from entry 0; the others' rows become zero.
template <class Codes, int D>
__device__ void gather(const PrefillArguments& arguments, int head, const std::byte* page,
                       int first, int entries) {
  constexpr int kChunks = D / 8;
  constexpr int kPairs = kPageEntries / 2;
  constexpr int kAll = 2 * kPairs * kChunks;
  constexpr int kEach = (kAll + kThreads - 1) / kThreads;
  const GatheredRows& rows = arguments.rows;
  const auto piece_of = [](int i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    return Piece{at / kChunks / kPairs, at / kChunks % kPairs, at % kChunks};
  };
  const bool wide = page == nullptr && arguments.chunk.band_in_16_bits;
  EntryPair<Codes> x[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (const Piece piece = piece_of(i); piece.part < 2 && !wide) {
      x[i] = page != nullptr ? from_page<Codes, D>(page, piece)
                             : from_band<Codes, D>(arguments.chunk, head, first, piece);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (const Piece piece = piece_of(i); piece.part < 2) {
      std::byte* slab =
          rows.memory +
          (std::size_t(head * 2 + piece.part) * kSlabs<D> + piece.c / 8) * rows.slab_bytes();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int entry = first + 2 * piece.pair + k;
        const int row = page != nullptr ? entry : rows.archive_rows + entry;
        uint4 numbers{};
        if (entry < entries) {
          numbers =
              wide ? from_wide_band<D>(arguments.chunk, head, entry, piece) : x[i].to_16_bits(k);
        }
        *reinterpret_cast<uint4*>(slab + std::size_t(row) * kSlabBytes +
                                  (piece.c % 8 ^ row % 8) * 16) = numbers;
      }
    }
  }
}

// Exclusive prefix sums, in place; kThreads threads.
__device__ void exclusive_scan(int (&x)[kBuckets]) {
  __shared__ int sums[kThreads / 32];
  constexpr int kEach = kBuckets / kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  int own = 0;
  for (int i = 0; i < kEach; ++i) {
    own += x[thread * kEach + i];
  }
  int through = own;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFU, through, step);
    through += thread % 32 >= step ? before : 0;
  }
  if (thread % 32 == 31) {
    sums[thread / 32] = through;
  }
  __syncthreads();
  int sum = through - own;
  for (int warp = 0; warp < thread / 32; ++warp) {
    sum += sums[warp];
  }
  for (int i = 0; i < kEach; ++i) {
    const int next = sum + x[thread * kEach + i];
    x[thread * kEach + i] = sum;
    sum = next;
  }
}

// Sorts the tiles by the length of their lists, the longest first, in steps of 1 / kBuckets of the
// longest possible list.
__device__ void order_tiles(const PrefillArguments& arguments) {
  __shared__ int begin[kBuckets];
  const int most = arguments.rows.archive_rows + arguments.chunk.lead + arguments.chunk.tokens;
  const int unit = most / kBuckets + 1;
  const auto bucket_of = [&](int tile) {
    return kBuckets - 1 - PrefillTile(arguments, tile).length / unit;
  };
  for (int i = threadIdx.x; i < kBuckets; i += kThreads) {
    begin[i] = 0;
  }
  __syncthreads();
#pragma unroll 4
  for (int tile = threadIdx.x; tile < arguments.tiles; tile += kThreads) {
    atomicAdd(&begin[bucket_of(tile)], 1);
  }
  __syncthreads();
  exclusive_scan(begin);
  __syncthreads();
#pragma unroll 4
  for (int tile = threadIdx.x; tile < arguments.tiles; tile += kThreads) {
    arguments.tile_order[atomicAdd(&begin[bucket_of(tile)], 1)] = tile;
  }
}

// Its input is complete after the wait, so it can be read as read-only memory (__ldg). Blocks (x,
// head) each process a page's worth of the head's entries at a time, first of the archive, then of
// the band. The first head's extra block orders the tiles.
template <class Codes, int D>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    gather_kernel(const __grid_constant__ PrefillArguments arguments) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const PrefillChunk& chunk = arguments.chunk;
  const GatheredRows& rows = arguments.rows;
  const int head = static_cast<int>(blockIdx.y);
  const int blocks = static_cast<int>(gridDim.x) - 1;
  if (static_cast<int>(blockIdx.x) == blocks) {
    if (head == 0) {
      if (threadIdx.x == 0) {
        *arguments.next_tile = 0;
      }
      order_tiles(arguments);
    }
    return;
  }
  const int archived = chunk.archive_counts[std::size_t(head + 1) * chunk.tokens - 1];
  const int pages = (archived + kPageEntries - 1) / kPageEntries;
  const std::uint32_t* table = chunk.archive_pages + head * chunk.archive_stride;
  for (int unit = blockIdx.x; unit < pages + rows.band_rows / kPageEntries; unit += blocks) {
    if (unit < pages) {
      gather<Codes, D>(arguments, head, chunk.pool + table[unit] * arguments.page_bytes,
                       unit * kPageEntries, archived);
    } else {
      gather<Codes, D>(arguments, head, nullptr, (unit - pages) * kPageEntries,
                       chunk.lead + chunk.tokens);
    }
  }
}

template <class Codes, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  const int units = (arguments.rows.archive_rows + arguments.rows.band_rows) / kPageEntries;
  const int most = winnow::cuda::multiprocessor_count() * kBlocksPerMultiprocessor;
  const int blocks = std::clamp(most / arguments.kv_heads - 1, 1, units);
  winnow::cuda::launch(
      gather_kernel<Codes, D>,
      dim3(static_cast<unsigned>(blocks + 1), static_cast<unsigned>(arguments.kv_heads)), kThreads,
      0, stream, true, arguments);
}

}  // namespace

void launch_gather(const DevicePageLayout& layout, const PrefillArguments& arguments,
                   cudaStream_t stream) {
  with_shape(layout.format(), layout.head_dim(),
             [&]<EntryFormat kType, int D>() { launch<CodesOf<kType>, D>(arguments, stream); });
}

}  // namespace winnow::ops::cuda
