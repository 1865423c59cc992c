// The interface between prefill attention's host code and its kernels.
#pragma once

#include "ops/cuda/prefill/prefill_attention.h"

namespace winnow::ops::cuda {

/// A gathered row (a key or a value in 16 bits) is divided into slabs of 64 channels, 128 bytes
/// each. Within a slab, the 16-byte chunk c of row r is at place c ^ (r % 8): no two of eight rows
/// share a bank, whether rows or columns are read, and it is wgmma's 128-byte swizzle.
inline constexpr int kSlabChannels = 64;
inline constexpr int kSlabBytes = 128;

/// Rows that a kernel may read past the last one it needs.
inline constexpr int kSpareRows = 128;

template <int D>
inline constexpr int kSlabs = (D + kSlabChannels - 1) / kSlabChannels;

/// The gathered rows: [kv_heads][keys, values][slabs][archive rows, then band rows]. Rows without
/// an entry are zero.
struct GatheredRows {
  std::byte* memory;
  int archive_rows;  // capacity for the archive: the band's rows begin here
  int band_rows;
  [[nodiscard]] __host__ __device__ std::size_t slab_bytes() const {
    return static_cast<std::size_t>(archive_rows + band_rows) * kSlabBytes;
  }
};

/// Split-K: the list of a tile is divided among `count` blocks, and what each of them adds to row r
/// of tile t is at (t * count + part) * kLeastTileRows + r of these.
struct SplitParts {
  int count;        // 1: blocks write the output themselves
  float2* softmax;  // the score that weights are relative to (-infinity: none), the sum of weights
  float* out;       // [head_dim] each: values times weights
};

struct PrefillArguments {
  PrefillChunk chunk;
  GatheredRows rows;
  std::size_t page_bytes;
  std::int32_t* next_tile;   // number of tiles that have been taken
  std::int32_t* tile_order;  // [tiles] longest first
  int tile_tokens;
  int tiles;
  int kv_heads;
  int group;
  float scale;  // of the scores, times log2(e)
  SplitParts parts;
};

/// Places of a tile's list that the kernels with mma.sync take at a time.
inline constexpr int kTileBlock = 64;

/// Query rows per tile of the kernel for this head_dim.
inline constexpr int kLeastTileRows = 128;
constexpr int prefill_tile_rows(int head_dim, PrefillKernel kernel) {
  return kernel == PrefillKernel::gathered && head_dim == 64 ? 192 : kLeastTileRows;
}

static_assert(prefill_tile_rows(64, PrefillKernel::gathered) >= kLeastTileRows &&
              prefill_tile_rows(128, PrefillKernel::gathered) >= kLeastTileRows);  // order_bytes()

/// For split-K: the most parts of a tile, and the blocks of threads that a device holds at once.
inline constexpr int kMostSplitParts = 32;
int split_blocks(int head_dim);

/// Writes the gathered rows and the order of tiles, and sets next_tile to zero.
void launch_gather(const DevicePageLayout& layout, const PrefillArguments& arguments,
                   cudaStream_t stream);

/// Undoes the rotation of entries (ops/rotation.h) in `vectors` outputs [head_dim].
void launch_rotate_back(int head_dim, bf16* out, int vectors, cudaStream_t stream);

/// Attention over the gathered rows, for any device and for Hopper.
void launch_prefill(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                    cudaStream_t stream);
void launch_prefill_sm90(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                         cudaStream_t stream);
/// Attention that reads pages and band itself, with split-K, for any device.
void launch_split_prefill(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                          cudaStream_t stream);

}  // namespace winnow::ops::cuda
