// General decode attention: the splits of each row. A block processes a split of a KV head's pages
// for some of its query heads, one warp per query head. All warps read a page's entries from shared
// memory, where the block has converted them to floats.
#include <algorithm>

#include "base/cuda/device.h"
#include "base/cuda/launch.cuh"
#include "ops/cuda/general/decode_attention_kernels.h"
#include "ops/cuda/general/entry_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpSize = 32;

__host__ __device__ constexpr int pages_of(int entries) {
  return (entries + kPageEntries - 1) / kPageEntries;
}

// A row's pages: those of the window, then those of the archive.
struct RowPages {
  const std::uint32_t* window;
  const std::uint32_t* archive;
  int window_entries = 0;
  int archive_entries = 0;

  __device__ RowPages(const DecodeEntries& entries, int slot, int head) {
    const int heads = entries.table_heads > 0 ? entries.table_heads : entries.kv_heads;
    const std::size_t row = static_cast<std::size_t>(slot) * heads + head;
    const int ring = entries.rings != nullptr ? entries.rings[slot] : entries.window + 1;
    window = entries.window_pages + row * entries.window_stride;
    archive = entries.archive_pages + row * entries.archive_stride;
    const int length = entries.lengths[slot];
    window_entries = entries.chunked ? length % ring + 1 : min(length + 1, ring);
    archive_entries = entries.archive_counts[row];
  }

  [[nodiscard]] __device__ int count() const {
    return pages_of(window_entries) + pages_of(archive_entries);
  }
  /// Page `index`, and its number of entries.
  __device__ std::uint32_t page(int index, int& entries) const {
    const int of_window = pages_of(window_entries);
    const bool in_window = index < of_window;
    const int within = in_window ? index : index - of_window;
    entries =
        min(kPageEntries, (in_window ? window_entries : archive_entries) - within * kPageEntries);
    return (in_window ? window : archive)[within];
  }
};

// Queries of the block's heads [warps][stride], then the tile.
int shared_bytes(int head_dim, int warps) {
  return static_cast<int>(sizeof(float)) *
         (warps * tile_stride(head_dim) + EntryTile::floats(head_dim));
}

// Block (row, head block, split).
template <class Format, int kSteps>
__global__ void __launch_bounds__(kMostHeadsOfBlock* kWarpSize)
    split_kernel(const __grid_constant__ GeneralDecodeArguments arguments) {
  extern __shared__ __align__(16) float memory[];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const DecodeEntries& entries = arguments.entries;
  const int row = static_cast<int>(blockIdx.x);
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_head = static_cast<int>(blockIdx.y) * warps;
  const int dim = arguments.head_dim;
  float* queries = memory;
  const EntryTile tile(memory + warps * tile_stride(dim), dim);

  // Surplus warps repeat the last head and store nothing.
  const int head = min(first_head + warp, arguments.group - 1);
  const std::size_t query_row = static_cast<std::size_t>(row) * arguments.group + head;
  for (int d = lane; d < dim; d += kWarpSize) {
    queries[warp * tile_stride(dim) + d] = arguments.query[query_row * dim + d];
  }
  const LogitRule logit(arguments.logits);
  SoftmaxOutputs<1, kSteps> outputs;
  if (const int slot = entries.slots[row / entries.kv_heads]; slot >= 0) {
    const RowPages pages(entries, slot, row % entries.kv_heads);
    const long long count = pages.count();
    const int end = static_cast<int>((blockIdx.z + 1) * count / arguments.splits);
    for (int p = static_cast<int>(blockIdx.z * count / arguments.splits); p < end; ++p) {
      int on_page = 0;
      const std::uint32_t page = pages.page(p, on_page);
      __syncthreads();
      load_page<Format>(tile, entries.pool + page * arguments.page_bytes, on_page);
      __syncthreads();
      outputs.take(queries + warp * tile_stride(dim), tile, [&](int, int entry, float product) {
        return entry < on_page ? logit(product) : -INFINITY;
      });
    }
  }
  if (first_head + warp < arguments.group) {
    const std::size_t split = query_row * arguments.splits + blockIdx.z;
    if (lane == 0) {
      arguments.partial_sums[split] = {outputs.largest[0], outputs.sum[0]};
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (const int d = lane + 32 * i; d < dim) {
        arguments.partial_out[split * dim + d] = outputs.out[0][i];
      }
    }
  }
}

}  // namespace

void launch_general_decode(EntryFormat format, const GeneralDecodeArguments& arguments,
                           cudaStream_t stream) {
  const int warps = std::min(arguments.group, kMostHeadsOfBlock);
  const dim3 grid(arguments.batch * arguments.entries.kv_heads, head_blocks(arguments.group),
                  arguments.splits);
  const int bytes = shared_bytes(arguments.head_dim, warps);
  with_channel_steps(arguments.head_dim, [&]<int kSteps>() {
    with_format(format, [&]<EntryFormat kType>() {
      const auto kernel = split_kernel<FormatOf<kType>, kSteps>;
      winnow::cuda::check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "shared memory of decode attention");
      winnow::cuda::launch(kernel, grid, warps * kWarpSize, bytes, stream, true, arguments);
    });
  });
}

}  // namespace winnow::ops::cuda
