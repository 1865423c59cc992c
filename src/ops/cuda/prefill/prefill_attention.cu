// Prefill attention for any device with mma.sync: a block of threads processes a tile over its list
// of gathered rows. While one block of rows is multiplied, the next one is copied to shared memory.
#include <cuda_pipeline.h>

#include "base/cuda/device.h"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_product.cuh"

namespace winnow::ops::cuda {
namespace {

template <int D>
__device__ void copy_block(const PrefillArguments& arguments, const PrefillTile& tile, int place,
                           std::byte* stage) {
  constexpr int kChunks = D / 8;
  const GatheredRows& rows = arguments.rows;
  const std::byte* from = rows.memory + std::size_t(tile.head) * 2 * kSlabs<D> * rows.slab_bytes();
#pragma unroll
  for (int i = threadIdx.x; i < 2 * kTileBlock * kChunks; i += kTileWarps * 32) {
    const int c = i % kChunks;
    const int row = i / kChunks % kTileBlock;
    const int part = i / kChunks / kTileBlock;
    const int swizzled = (c % 8 ^ row % 8) * 16;
    const std::byte* slab = from + (part * kSlabs<D> + c / 8) * rows.slab_bytes();
    __pipeline_memcpy_async(
        stage + part * kPartBytes<D> + chunk_offset(row, c),
        slab + std::size_t(tile.row_at(place + row, rows)) * kSlabBytes + swizzled, 16);
  }
}

template <class Pair, int D>
__global__ void __launch_bounds__(kTileWarps * 32, resident_blocks(D))
    prefill_kernel(const __grid_constant__ PrefillArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  const PrefillTile tile(arguments, arguments.tile_order[blockIdx.x]);
  const int blocks = (tile.length + kTileBlock - 1) / kTileBlock;
  copy_block<D>(arguments, tile, 0, stage_of<D>(memory, 0));
  __pipeline_commit();
  TileRows<Pair, D> rows(arguments, tile);
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) {
      copy_block<D>(arguments, tile, (block + 1) * kTileBlock, stage_of<D>(memory, block + 1));
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    rows.attend(stage_of<D>(memory, block), block * kTileBlock);
    __syncthreads();  // the stage may be overwritten
  }
  rows.store();
}

template <class Pair, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  winnow::cuda::check(
      cudaFuncSetAttribute(prefill_kernel<Pair, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kSharedBytes<D>),
      "shared memory of prefill attention");
  prefill_kernel<Pair, D><<<arguments.tiles, kTileWarps * 32, kSharedBytes<D>, stream>>>(arguments);
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
