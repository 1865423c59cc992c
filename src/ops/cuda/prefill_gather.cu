// Brings the entries that a chunk sees into the form that the attention kernels read: 16 bits a
// number, rows one after another. Each entry is converted once here and read by many tiles there.
#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/page_codes.cuh"
#include "ops/cuda/prefill_tile.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kBuckets = 1024;

// Eight codes of an entry times its scale.
template <class Codes>
__device__ uint4 to_16_bits(const std::uint32_t (&codes)[2 * Codes::kBytes], float scale) {
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

// A page's worth of consecutive entries of one head: in a page of the archive, or of the band.
struct Source {
  const std::byte* page;  // of the archive, else null
  int head;
  int first;    // entry
  int entries;  // of the archive or band
};

// Channels 8 c ... of entry `slot` of a source's keys (part 0) or values (part 1); zeros where
// there is no entry.
template <class Codes, int D>
__device__ uint4 read(const PrefillChunk& chunk, const Source& source, int part, int slot, int c) {
  constexpr int kBytes = Codes::kBytes;
  if (source.first + slot >= source.entries) {
    return {};
  }
  std::uint32_t codes[2 * kBytes];
  const bf16* scale;
  if (source.page == nullptr) {
    const std::size_t stride = chunk.band_stride;
    const std::byte* band = part == 0 ? chunk.band_keys : chunk.band_values;
    const std::size_t entry = source.first + slot;
    load_codes(band + ((source.head * stride + entry) * D + 8 * c) * kBytes, codes);
    scale = chunk.band_scales + (source.head * 2 + part) * stride + entry;
  } else {
    if (part == 0) {
      load_page_key<D, kBytes>(source.page, slot, 8 * c, codes);
    } else {
      load_page_value<D, kBytes>(source.page, slot, 8 * c, codes);
    }
    scale = page_scale<D, kBytes>(source.page, slot, part);
  }
  const std::uint32_t bits =
      Codes::kScaled ? __ldg(reinterpret_cast<const std::uint16_t*>(scale)) : 0;
  return to_16_bits<Codes>(codes, __uint_as_float(bits << 16));
}

template <class Codes, int D>
__device__ void gather(const PrefillArguments& arguments, const Source& source, int first_row) {
  constexpr int kChunks = D / 8;
  constexpr int kAll = 2 * kPageEntries * kChunks;
  constexpr int kEach = (kAll + kThreads - 1) / kThreads;
  const GatheredRows& rows = arguments.rows;
  uint4 x[kEach];
  const auto for_each = [](auto body) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      if (kAll % kThreads == 0 || at < kAll) {
        body(i, at / kChunks / kPageEntries, at / kChunks % kPageEntries, at % kChunks);
      }
    }
  };
  for_each([&](int i, int part, int slot, int c) {
    x[i] = read<Codes, D>(arguments.chunk, source, part, slot, c);
  });
  for_each([&](int i, int part, int slot, int c) {
    const int row = first_row + slot;
    std::byte* slab =
        rows.memory + (std::size_t(source.head * 2 + part) * kSlabs<D> + c / 8) * rows.slab_bytes();
    *reinterpret_cast<uint4*>(slab + std::size_t(row) * kSlabBytes + (c % 8 ^ row % 8) * 16) = x[i];
  });
}

// Sums of what comes before, in place; kThreads threads.
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

// Sorts the tiles by the length of their lists, the longest first, to 1 / kBuckets of the longest
// possible.
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

// Blocks (x, head) take a page's worth of that head at a time: first those of the archive, then
// those of the band. One more block per head: the first of them orders the tiles.
template <class Codes, int D>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    gather_kernel(const __grid_constant__ PrefillArguments arguments) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
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
      const int first = unit * kPageEntries;
      const std::byte* page = chunk.pool + table[unit] * arguments.page_bytes;
      gather<Codes, D>(arguments, {page, head, first, archived}, first);
    } else {
      const int first = (unit - pages) * kPageEntries;
      gather<Codes, D>(arguments, {nullptr, head, first, chunk.lead + chunk.tokens},
                       rows.archive_rows + first);
    }
  }
}

template <class Codes, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  const int units = (arguments.rows.archive_rows + arguments.rows.band_rows) / kPageEntries;
  const int most = winnow::cuda::multiprocessor_count() * kBlocksPerMultiprocessor;
  const int blocks = std::clamp(most / arguments.kv_heads - 1, 1, units);
  gather_kernel<Codes, D><<<dim3(blocks + 1, arguments.kv_heads), kThreads, 0, stream>>>(arguments);
  winnow::cuda::check_launch("gather of prefill attention");
}

template <class Codes>
void launch(int head_dim, const PrefillArguments& arguments, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch<Codes, 64>(arguments, stream);
    case 80:
      return launch<Codes, 80>(arguments, stream);
    case 96:
      return launch<Codes, 96>(arguments, stream);
    default:
      return launch<Codes, 128>(arguments, stream);
  }
}

}  // namespace

void launch_gather(const DevicePageLayout& layout, const PrefillArguments& arguments,
                   cudaStream_t stream) {
  switch (layout.format()) {
    case DType::bf16:
      return launch<Bf16Codes>(layout.head_dim(), arguments, stream);
    case DType::f8e4m3:
      return launch<F8Codes>(layout.head_dim(), arguments, stream);
    default:
      return launch<I8Codes>(layout.head_dim(), arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
