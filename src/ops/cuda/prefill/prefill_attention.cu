// Prefill attention for any device with mma.sync. A block of eight warps processes a tile of 128
// query rows, 16 per warp, over the tile's list of gathered rows, 64 at a time: while one block
// of rows is multiplied, the next one is copied to shared memory.
#include <cuda_pipeline.h>

#include "base/cuda/device.h"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_tile.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 8;
static_assert(16 * kWarps == kLeastTileRows);
constexpr int kBlock = 64;  // places of the list at a time

template <int D>
constexpr int kPartBytes = kSlabs<D>* kBlock* kSlabBytes;  // keys of a block, or values
template <int D>
constexpr int kSharedBytes = 4 * kPartBytes<D>;

/// The offset of chunk c of a row of a block.
__device__ int chunk_offset(int row, int c) {
  return c / 8 * (kBlock * kSlabBytes) + row * kSlabBytes + (c % 8 ^ row % 8) * 16;
}

template <int D>
__device__ void copy_block(const PrefillArguments& arguments, const PrefillTile& tile, int place,
                           std::byte* stage) {
  constexpr int kChunks = D / 8;
  const GatheredRows& rows = arguments.rows;
  const std::byte* from = rows.memory + std::size_t(tile.head) * 2 * kSlabs<D> * rows.slab_bytes();
#pragma unroll
  for (int i = threadIdx.x; i < 2 * kBlock * kChunks; i += kWarps * 32) {
    const int c = i % kChunks;
    const int row = i / kChunks % kBlock;
    const int part = i / kChunks / kBlock;
    const int swizzled = (c % 8 ^ row % 8) * 16;
    const std::byte* slab = from + (part * kSlabs<D> + c / 8) * rows.slab_bytes();
    __pipeline_memcpy_async(
        stage + part * kPartBytes<D> + chunk_offset(row, c),
        slab + std::size_t(tile.row_at(place + row, rows)) * kSlabBytes + swizzled, 16);
  }
}

template <class Pair, int D>
__device__ void load_queries(const PrefillArguments& arguments, const QueryRow (&rows)[2],
                             std::uint32_t (&query)[D / 16][4]) {
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bf16* from =
          arguments.chunk.query + rows[i % 2].offset + 16 * step + i / 2 * 8 + threadIdx.x % 4 * 2;
      query[step][i] = from_bf16<Pair>(*reinterpret_cast<const std::uint32_t*>(from));
    }
  }
}

/// scores = queries x keys of a block.
template <class Pair, int D>
__device__ void score(const std::uint32_t (&query)[D / 16][4], const std::byte* keys,
                      float (&scores)[kBlock / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[kBlock / 8][4] = reinterpret_cast<float(&)[kBlock / 8][4]>(scores);
#pragma unroll
  for (float& x : scores) {
    x = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
#pragma unroll
    for (int t = 0; t < kBlock / 8; t += 2) {
      std::uint32_t b[4];
      load_matrices<false>(
          b, keys + chunk_offset(8 * t + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
      multiply<Pair>(tiles[t], query[step], b[0], b[1]);
      multiply<Pair>(tiles[t + 1], query[step], b[2], b[3]);
    }
  }
}

/// out += weights x values of a block.
template <class Pair, int D>
__device__ void accumulate(const float (&weights)[kBlock / 2], const std::byte* values,
                           float (&out)[D / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[D / 8][4] = reinterpret_cast<float(&)[D / 8][4]>(out);
  std::uint32_t operands[kBlock / 4];
  to_operands<Pair>(weights, operands);
#pragma unroll
  for (int step = 0; step < kBlock / 16; ++step) {
    const auto& operand = reinterpret_cast<const std::uint32_t(&)[4]>(operands[4 * step]);
#pragma unroll
    for (int t = 0; t < D / 8; t += 2) {
      std::uint32_t b[4];
      load_matrices<true>(
          b, values + chunk_offset(16 * step + lane / 8 % 2 * 8 + lane % 8, t + lane / 16));
      multiply<Pair>(tiles[t], operand, b[0], b[1]);
      multiply<Pair>(tiles[t + 1], operand, b[2], b[3]);
    }
  }
}

template <class Pair, int D>
__global__ void __launch_bounds__(kWarps * 32, D == 64 ? 2 : 1)
    prefill_kernel(const __grid_constant__ PrefillArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  const PrefillTile tile(arguments, arguments.tile_order[blockIdx.x]);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const QueryRow rows[2] = {{arguments, tile, row, D}, {arguments, tile, row + 8, D}};
  const VisiblePlaces visible[2] = {{arguments, tile, rows[0].token},
                                    {arguments, tile, rows[1].token}};
  const int blocks = (tile.length + kBlock - 1) / kBlock;
  const auto stage = [&](int block) { return memory + block % 2 * (2 * kPartBytes<D>); };

  copy_block<D>(arguments, tile, 0, stage(0));
  __pipeline_commit();
  std::uint32_t query[D / 16][4];
  load_queries<Pair, D>(arguments, rows, query);
  float out[D / 2] = {};
  SoftmaxRows softmax;
  for (int block = 0; block < blocks; ++block) {
    const int place = block * kBlock;
    if (block + 1 < blocks) {
      copy_block<D>(arguments, tile, place + kBlock, stage(block + 1));
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float scores[kBlock / 2];
    score<Pair, D>(query, stage(block), scores);
    if (!all_see(arguments, tile, place, kBlock)) {
      mask(scores,
           {columns_seen<kBlock>(visible[0], place), columns_seen<kBlock>(visible[1], place)});
    }
    float factor[2];
    if (softmax.weigh(scores, arguments.scale, factor)) {
      multiply_rows(out, factor);
    }
    accumulate<Pair, D>(scores, stage(block) + kPartBytes<D>, out);
    __syncthreads();  // the stage may be overwritten
  }
  float factor[2];
  softmax.reciprocals(factor);
  bf16* const target = arguments.chunk.out;
  store_rows<D>(out, factor, {target + rows[0].offset, target + rows[1].offset});
}

template <class Pair, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  winnow::cuda::check(
      cudaFuncSetAttribute(prefill_kernel<Pair, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedBytes<D>),
      "shared memory of prefill attention");
  prefill_kernel<Pair, D><<<arguments.tiles, kWarps * 32, kSharedBytes<D>, stream>>>(arguments);
  winnow::cuda::check_launch("prefill attention");
}

}  // namespace

void launch_prefill(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                    cudaStream_t stream) {
  with_head_dim(head_dim, [&]<int D>() {
    if (format == EntryFormat::bf16) {
      launch<__nv_bfloat162, D>(arguments, stream);
    } else {
      launch<__half2, D>(arguments, stream);
    }
  });
}

}  // namespace winnow::ops::cuda
