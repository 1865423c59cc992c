// Converts the entries that a chunk sees to the attention kernels' format: 16-bit
// numbers in contiguous rows. Each entry is converted once here and read by many tiles there.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/pages/kv_codes.cuh"
#include "ops/cuda/prefill/page_codes.cuh"
#include "ops/cuda/prefill/prefill_tile.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kBuckets = 1024;

// 32-bit words that eight codes take.
template <class Codes>
constexpr int kEightWords = kCodeBits<Codes> / 4;

// Eight codes of an entry times its scale.
template <class Codes>
__device__ uint4 to_16_bits(const std::uint32_t (&codes)[kEightWords<Codes>], float scale) {
  std::uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = Codes::pair(codes, i);
    if constexpr (Codes::kScaled) {
      typename Codes::Pair pair;
      memcpy(&pair, &x[i], sizeof(pair));
      const float2 code = unpack(pair);
      x[i] = bits_of(Codes::round(code.x * scale, code.y * scale));
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

// Two neighbouring entries' codes of eight channels, and the entries' scales.
template <class Codes>
struct EntryPair {
  std::uint32_t codes[2][kEightWords<Codes>];
  std::uint32_t scales[2] = {};  // bf16

  __device__ uint4 to_16_bits(int entry) const {
    return cuda::to_16_bits<Codes>(codes[entry], __uint_as_float(scales[entry] << 16));
  }
  __device__ void load_scales(const std::byte* first) {
    if constexpr (Codes::kScaled) {
#pragma unroll
      for (int entry = 0; entry < 2; ++entry) {
        scales[entry] = __ldg(reinterpret_cast<const std::uint16_t*>(first) + entry);
      }
    }
  }
};

// A thread's part of a page's worth of entries.
struct Piece {
  int part;  // 0: keys, 1: values
  int pair;  // of entries
  int c;     // eight channels
};

template <class Codes, int D>
__device__ EntryPair<Codes> from_page(const std::byte* page, const Piece& piece) {
  constexpr PageAddress kAddress{D, kCodeBits<Codes>};
  EntryPair<Codes> x;
  if (piece.part == 0) {
    load_page_keys<D, kCodeBits<Codes>>(page, 2 * piece.pair, 8 * piece.c, x.codes[0]);
    load_page_keys<D, kCodeBits<Codes>>(page, 2 * piece.pair + 1, 8 * piece.c, x.codes[1]);
    x.load_scales(page + kAddress.key_scale(2 * piece.pair));
  } else {
    load_page_values<D, kCodeBits<Codes>>(page, piece.pair, 8 * piece.c, x.codes);
    x.load_scales(page + kAddress.value_scale(2 * piece.pair));
  }
  return x;
}

// Entries `first` + 2 pair ... of the band. Entries that do not exist are not read.
template <class Codes, int D>
__device__ EntryPair<Codes> from_band(const PrefillChunk& chunk, int head, int first,
                                      const Piece& piece) {
  const std::byte* band = piece.part == 0 ? chunk.band_keys : chunk.band_values;
  const auto stride = static_cast<std::size_t>(chunk.band_stride);
  const int last = chunk.lead + chunk.tokens - 1;
  EntryPair<Codes> x;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int entry = min(first + 2 * piece.pair + i, last);
    load_row_codes(band + ((head * stride + entry) * D + 8 * piece.c) * kCodeBits<Codes> / 8,
                   x.codes[i]);
    if constexpr (Codes::kScaled) {
      x.scales[i] = __ldg(reinterpret_cast<const std::uint16_t*>(chunk.band_scales) +
                          (head * 2 + piece.part) * stride + entry);
    }
  }
  return x;
}

// The same for a band in 16 bits.
template <int D>
__device__ uint4 from_wide_band(const PrefillChunk& chunk, int head, int entry,
                                const Piece& piece) {
  const std::byte* band = piece.part == 0 ? chunk.band_keys : chunk.band_values;
  const std::size_t row = static_cast<std::size_t>(head) * chunk.band_stride + entry;
  return __ldg(reinterpret_cast<const uint4*>(band + (row * D + 8 * piece.c) * 2));
}

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
