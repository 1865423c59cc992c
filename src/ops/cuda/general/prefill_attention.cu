// General prefill attention: a block processes 32 query rows of a KV head over the archive's pages
// and the band, 16 entries at a time.
#include <numbers>

#include "base/cuda/launch.cuh"
#include "ops/cuda/general/entry_rows.cuh"
#include "ops/cuda/general/prefill_attention_kernels.h"
#include "ops/cuda/general/query_rows.h"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kRowWarps * 32;

// Query rows [kRowsPerBlock][stride], then the tile.
int shared_bytes(int head_dim) {
  return static_cast<int>(sizeof(float)) *
         (kRowsPerBlock * tile_stride(head_dim) + EntryTile::floats(head_dim));
}

// A block's rows, as stored in the caller's arrays.
struct BlockRows {
  const GeneralPrefillArguments& arguments;
  int kv_head;
  int first;  // row
  int end;    // of all rows

  __device__ explicit BlockRows(const GeneralPrefillArguments& arguments) : arguments(arguments) {
    kv_head = static_cast<int>(blockIdx.y);
    // The last rows see the most entries: they begin first.
    first = arguments.chunk.first_out * arguments.group +
            static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRowsPerBlock;
    end = arguments.chunk.tokens * arguments.group;
  }

  /// Surplus rows repeat the last one.
  [[nodiscard]] __device__ int row(int index) const { return min(first + index, end - 1); }
  [[nodiscard]] __device__ int token(int index) const { return row(index) / arguments.group; }
  /// The query head of a row.
  [[nodiscard]] __device__ int head(int index) const {
    return kv_head * arguments.group + row(index) % arguments.group;
  }
  /// The offset of a row's channels in query and out.
  [[nodiscard]] __device__ std::size_t offset(int index) const {
    const std::size_t heads = static_cast<std::size_t>(arguments.kv_heads) * arguments.group;
    return (token(index) * heads + head(index)) * arguments.head_dim;
  }
  /// The number of archive entries that a row sees: the first ones.
  [[nodiscard]] __device__ int archived(int index) const {
    const std::size_t tokens = arguments.chunk.tokens;
    return arguments.chunk.archive_counts[kv_head * tokens + token(index)];
  }
  /// The band's entries that a row sees: [oldest, newest].
  [[nodiscard]] __device__ int newest(int index) const {
    return arguments.chunk.lead + token(index);
  }
  [[nodiscard]] __device__ int oldest(int index) const {
    return max(0, newest(index) - arguments.chunk.window);
  }
};

// Entries [first, first + entries) of a head's band.
template <class Format>
__device__ void load_band(const EntryTile& tile, const PrefillChunk& chunk, int kv_head, int first,
                          int entries) {
  using Number = std::conditional_t<(Format::kLargest > 0.0F), __half, __nv_bfloat16>;
  const std::size_t stride = chunk.band_stride;
  const std::size_t row = kv_head * stride + first;
  for (int part = 0; part < 2; ++part) {
    float* to = part == 0 ? tile.keys : tile.values;
    const std::byte* band = part == 0 ? chunk.band_keys : chunk.band_values;
    if (chunk.band_in_16_bits) {
      load_number_rows<Number>(to, tile.head_dim, band + row * tile.head_dim * sizeof(Number),
                               entries);
    } else {
      // Scales are stored head by head, a head's keys' and then its values'.
      const auto* scales = reinterpret_cast<const std::byte*>(
          chunk.band_scales + (kv_head * 2 + part) * stride + first);
      load_code_rows<Format>(to, tile.head_dim,
                             {band + row * tile.head_dim * kFormatBits<Format> / 8, scales},
                             entries);
    }
  }
}

// The visibility of a warp's rows: kRowsPerWarp of the block's rows, from `first_row` on.
template <class Format, int kSteps>
__device__ void attend(const BlockRows& rows, int first_row, const float* queries,
                       const EntryTile& tile, SoftmaxOutputs<kRowsPerWarp, kSteps>& outputs) {
  const PrefillChunk& chunk = rows.arguments.chunk;
  const LogitRule logit(rows.arguments.logits);
  int archived[kRowsPerWarp];
  int oldest[kRowsPerWarp];
  int newest[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    archived[r] = rows.archived(first_row + r);
    oldest[r] = rows.oldest(first_row + r);
    newest[r] = rows.newest(first_row + r);
  }
  const int most_archived = rows.archived(kRowsPerBlock - 1);
  const std::uint32_t* pages = chunk.archive_pages + rows.kv_head * chunk.archive_stride;
  for (int first = 0; first < most_archived; first += kEntryTile) {
    __syncthreads();
    load_page<Format>(tile, chunk.pool + pages[first / kEntryTile] * rows.arguments.page_bytes,
                      min(kEntryTile, most_archived - first));
    __syncthreads();
    outputs.take(queries, tile, [&](int r, int entry, float product) {
      return first + entry < archived[r] ? logit(product) : -INFINITY;
    });
  }
  const int end = rows.newest(kRowsPerBlock - 1) + 1;
  for (int first = rows.oldest(0); first < end; first += kEntryTile) {
    __syncthreads();
    load_band<Format>(tile, chunk, rows.kv_head, first, min(kEntryTile, end - first));
    __syncthreads();
    outputs.take(queries, tile, [&](int r, int entry, float product) {
      const int at = first + entry;
      return at >= oldest[r] && at <= newest[r] ? logit(product) : -INFINITY;
    });
  }
}

template <class Format, int kSteps>
__global__ void __launch_bounds__(kThreads)
    prefill_kernel(const __grid_constant__ GeneralPrefillArguments arguments) {
  extern __shared__ __align__(16) float memory[];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int dim = arguments.head_dim;
  const int stride = tile_stride(dim);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * kRowsPerWarp;
  const BlockRows rows(arguments);
  float* queries = memory + first_row * stride;  // only this warp accesses them
  const EntryTile tile(memory + kRowsPerBlock * stride, dim);
  for (int r = 0; r < kRowsPerWarp; ++r) {
    for (int d = lane; d < dim; d += 32) {
      queries[r * stride + d] = to_float(arguments.chunk.query[rows.offset(first_row + r) + d]);
    }
  }
  __syncwarp();
  SoftmaxOutputs<kRowsPerWarp, kSteps> outputs;
  attend<Format>(rows, first_row, queries, tile, outputs);
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int index = first_row + r;
    if (arguments.logits.sinks != nullptr) {
      outputs.take_sink(r, arguments.logits.sinks[rows.head(index)] * std::numbers::log2e_v<float>);
    }
    if (rows.first + index >= rows.end) {
      continue;
    }
    const float inverse = outputs.inverse_sum(r);
    bf16* out = arguments.chunk.out + rows.offset(index);
    if constexpr (Format::kRotated) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (const int d = lane + 32 * i; d < dim) {
          queries[r * stride + d] = outputs.out[r][i] * inverse;
        }
      }
      __syncwarp();
      HeadVector<0> vector{HeadDim<0>(dim)};
      vector.load(static_cast<const float*>(queries + r * stride), nullptr);
      vector.rotate_back();
      vector.store(out);
    } else {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (const int d = lane + 32 * i; d < dim) {
          out[d] = to_bf16(outputs.out[r][i] * inverse);
        }
      }
    }
  }
}

}  // namespace

void launch_general_prefill(EntryFormat format, const GeneralPrefillArguments& arguments,
                            cudaStream_t stream) {
  const int rows = (arguments.chunk.tokens - arguments.chunk.first_out) * arguments.group;
  const dim3 grid(row_blocks(rows), arguments.kv_heads);
  const int bytes = shared_bytes(arguments.head_dim);
  with_channel_steps(arguments.head_dim, [&]<int kSteps>() {
    with_format(format, [&]<EntryFormat kType>() {
      const auto kernel = prefill_kernel<FormatOf<kType>, kSteps>;
      winnow::cuda::check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "shared memory of prefill attention");
      winnow::cuda::launch(kernel, grid, kThreads, bytes, stream, true, arguments);
    });
  });
}

}  // namespace winnow::ops::cuda
