// Prefill attention of a few tokens with split-K: the entries that a tile sees are divided among
// blocks, which read pages and band themselves, since no other tile needs them in 16 bits. A second
// kernel adds up the parts.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_entries.cuh"
#include "ops/cuda/prefill/prefill_product.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kTileWarps * 32;

// Moves a block of a tile's list to shared memory by way of registers, so that the next block's
// codes are in flight while this one is multiplied.
template <class Codes, int D>
class BlockLoader {
 public:
  __device__ BlockLoader(const PrefillArguments& arguments, const PrefillTile& tile)
      : arguments_(arguments),
        tile_(tile),
        archived_(arguments.chunk
                      .archive_counts[std::size_t(tile.head + 1) * arguments.chunk.tokens - 1]) {}

  /// Reads the numbers of a block's pages, for load().
  __device__ void look_up(int block) {
    const PrefillChunk& chunk = arguments_.chunk;
    const std::uint32_t* table = chunk.archive_pages + tile_.head * chunk.archive_stride;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const Source from(*this, block, i); from.exists && from.in_archive) {
        pages_[i] = __ldg(table + from.first / kPageEntries);
      }
    }
  }

  __device__ void load(int block) {
    const PrefillChunk& chunk = arguments_.chunk;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const Source from(*this, block, i);
      if (from.exists && from.in_archive) {
        x_[i] = from_page<Codes, D>(chunk.pool + pages_[i] * arguments_.page_bytes, from.piece);
      } else if (from.exists && !chunk.band_in_16_bits) {
        x_[i] = from_band<Codes, D>(chunk, tile_.head, from.first, from.piece);
      }
    }
  }

  /// What load() has read for this block. Entries that do not exist become zero.
  __device__ void store(int block, std::byte* stage) const {
    const PrefillChunk& chunk = arguments_.chunk;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const Source from(*this, block, i); from.exists) {
        const bool wide = !from.in_archive && chunk.band_in_16_bits;
        const int entries = from.in_archive ? archived_ : chunk.lead + chunk.tokens;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int own = 2 * from.piece.pair + k;
          const int entry = from.first + own;
          uint4 numbers{};
          if (entry < entries) {
            numbers = wide ? from_wide_band<D>(chunk, tile_.head, entry, from.piece)
                           : x_[i].to_16_bits(k);
          }
          *reinterpret_cast<uint4*>(stage + from.piece.part * kPartBytes<D> +
                                    chunk_offset(from.row + own, from.piece.c)) = numbers;
        }
      }
    }
  }

 private:
  static constexpr int kChunks = D / 8;
  static constexpr int kPairs = kPageEntries / 2;
  static constexpr int kOfPage = 2 * kPairs * kChunks;  // pieces
  static constexpr int kAll = kTileBlock / kPageEntries * kOfPage;
  static constexpr int kEach = (kAll + kThreads - 1) / kThreads;

  // Where a thread's i-th piece of a block comes from.
  struct Source {
    bool exists;
    int row;  // in the block, of the page's worth of entries to which it belongs
    bool in_archive;
    int first;  // entry of the archive or the band, of that page's worth
    Piece piece;

    __device__ Source(const BlockLoader& loader, int block, int i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      exists = at < kAll;
      row = at / kOfPage * kPageEntries;
      const int place = block * kTileBlock + row;
      in_archive = place < loader.tile_.archive;
      first = in_archive ? place : loader.tile_.band + place - loader.tile_.archive;
      piece = {at % kOfPage / kChunks / kPairs, at / kChunks % kPairs, at % kChunks};
    }
  };

  const PrefillArguments& arguments_;
  const PrefillTile& tile_;
  int archived_;  // entries of the head's archive
  std::uint32_t pages_[kEach];
  EntryPair<Codes> x_[kEach];
};

// Block tile * parts + part. kShares warps share the same rows.
template <class Codes, int D, int kShares>
__global__ void __launch_bounds__(kThreads, resident_blocks(D))
    split_kernel(const __grid_constant__ PrefillArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int parts = arguments.parts.count;
  const int part = static_cast<int>(blockIdx.x) % parts;
  const PrefillTile tile(arguments, static_cast<int>(blockIdx.x) / parts, kPageEntries);
  const int all = (tile.length + kTileBlock - 1) / kTileBlock;
  const int begin = part * all / parts;
  const int end = (part + 1) * all / parts;

  BlockLoader<Codes, D> loader(arguments, tile);
  if (begin < end) {
    loader.look_up(begin);
    loader.load(begin);
    loader.look_up(begin + 1);
  }
  TileRows<typename Codes::Pair, D, kShares> rows(arguments, tile);
  for (int block = begin; block < end; ++block) {
    // Stages alternate, so the one before the last is free once all have passed the barrier
    // between.
    std::byte* const stage = stage_of<D>(memory, block);
    loader.store(block, stage);
    if (block + 1 < end) {
      loader.load(block + 1);
      loader.look_up(block + 2);
    }
    __syncthreads();
    if (rows.exist()) {
      rows.attend(stage, block * kTileBlock);
    }
  }
  if (!rows.add_shares(memory)) {
    return;
  }
  if (parts == 1) {
    rows.store();
  } else {
    rows.store_part(arguments.parts, static_cast<int>(blockIdx.x));
  }
}

// A warp per query row; a lane per part finds the part's share of the row's weights.
template <int D>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ PrefillArguments arguments) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const PrefillChunk& chunk = arguments.chunk;
  const SplitParts& parts = arguments.parts;
  const int heads = arguments.kv_heads * arguments.group;
  const int row = static_cast<int>(blockIdx.x * kTileWarps + threadIdx.x / 32);
  const int token = row / heads;  // of those that are wanted
  const int head = row % heads;
  if (token >= chunk.tokens - chunk.first_out) {
    return;
  }
  const int tile = token / arguments.tile_tokens * arguments.kv_heads + head / arguments.group;
  const int own = token % arguments.tile_tokens * arguments.group + head % arguments.group;
  const std::size_t first = std::size_t(tile) * parts.count * kLeastTileRows + own;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  float2 softmax{-INFINITY, 0.0F};
  if (lane < parts.count) {
    softmax = parts.softmax[first + lane * kLeastTileRows];
  }
  float largest = softmax.x;
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
  }
  const float weight =
      softmax.x == -INFINITY ? 0.0F : exp2_of((softmax.x - largest) * arguments.scale);
  float sum = weight * softmax.y;
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  }
  const float share = weight / sum;

  constexpr int kPairs = D / 2;  // of channels
  constexpr int kEach = (kPairs + 31) / 32;
  float2 out[kEach] = {};
#pragma unroll 4
  for (int part = 0; part < parts.count; ++part) {
    const float of_part = __shfl_sync(0xFFFFFFFFU, share, part);
    const auto* from =
        reinterpret_cast<const float2*>(parts.out + (first + part * kLeastTileRows) * D);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      // A part in which the row sees nothing has a share of zero.
      if (const int pair = lane + 32 * i; pair < kPairs && of_part > 0.0F) {
        const float2 x = from[pair];
        out[i].x += of_part * x.x;
        out[i].y += of_part * x.y;
      }
    }
  }
  auto* const to = reinterpret_cast<std::uint32_t*>(
      chunk.out + (std::size_t(token + chunk.first_out) * heads + head) * D);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (const int pair = lane + 32 * i; pair < kPairs) {
      to[pair] = round_pair<__nv_bfloat162>(out[i].x, out[i].y);
    }
  }
}

template <class Codes, int D, int kShares>
void launch_parts(const PrefillArguments& arguments, cudaStream_t stream) {
  constexpr auto kKernel = split_kernel<Codes, D, kShares>;
  winnow::cuda::check(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<D>),
      "shared memory of prefill attention");
  winnow::cuda::launch(kKernel, arguments.tiles * arguments.parts.count, kThreads, kSharedBytes<D>,
                       stream, true, arguments);
}

template <class Codes, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  constexpr int kShares = 4;  // of 16 places, the depth of a product
  const int wanted = arguments.chunk.tokens - arguments.chunk.first_out;
  if (wanted * arguments.group <= TileRows<typename Codes::Pair, D, kShares>::kRows) {
    launch_parts<Codes, D, kShares>(arguments, stream);
  } else {
    launch_parts<Codes, D, 1>(arguments, stream);
  }
  if (arguments.parts.count > 1) {
    const int all = wanted * arguments.kv_heads * arguments.group;
    winnow::cuda::launch(combine_kernel<D>, (all + kTileWarps - 1) / kTileWarps, kThreads, 0,
                         stream, true, arguments);
  }
}

}  // namespace

int split_blocks(int head_dim) {
  return winnow::cuda::multiprocessor_count() * resident_blocks(head_dim);
}

void launch_split_prefill(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                          cudaStream_t stream) {
  with_shape(format, head_dim,
             [&]<EntryFormat kType, int D>() { launch<CodesOf<kType>, D>(arguments, stream); });
}

}  // namespace winnow::ops::cuda
