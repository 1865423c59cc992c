#include "ops/cuda/linear/fp8_columns.h"

#include "base/cuda/device.h"
#include "ops/cuda/linear/fp8_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kCodeWarps = kCodeThreads / kLanes;
constexpr int kMaximaRows = 128;  // of a block
constexpr int kCodeTileRows = 4 * kLanes;
constexpr int kCodeTileColumns = 8 * kCodeWarps;

int blocks_for(int count, int each) {
  return (count + each - 1) / each;
}

// Raises `largest`, which begins as zeros, to the largest magnitudes of the columns. A warp reads
// whole pieces of rows: a lane has eight columns.
__global__ void __launch_bounds__(kCodeThreads)
    column_maxima_kernel(float* largest, const bf16* x, int rows, int cols) {
  constexpr int kColumns = 8 * kLanes;
  static_assert(kColumns == kCodeThreads);  // at the end, a thread has a column
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int in_block = static_cast<int>(threadIdx.x) % kLanes * 8;
  const int first = static_cast<int>(blockIdx.y) * kColumns;
  const int begin = static_cast<int>(blockIdx.x) * kMaximaRows;
  const int end = min(rows, begin + kMaximaRows);
  Eight most;
  if (first + in_block < cols) {
    for (int row = begin + warp; row < end; row += kCodeWarps) {
      const Eight values = load_eight(x + std::size_t{1} * row * cols + first + in_block);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        most.values[i] = larger_magnitude(most.values[i], values.values[i]);
      }
    }
  }
  __shared__ alignas(16) float of_warps[kCodeWarps][kColumns];
  store_eight(&of_warps[warp][in_block], most);
  __syncthreads();
  const int column = first + static_cast<int>(threadIdx.x);
  if (column < cols) {
    float own = 0.0F;
    for (const auto& of_warp : of_warps) {
      own = fmaxf(own, of_warp[threadIdx.x]);
    }
    // Floats that are not negative compare like their bits.
    atomicMax(reinterpret_cast<int*>(largest + column), __float_as_int(own));
  }
}

// Codes of eight columns.
__device__ uint2 codes_of_columns(Eight x, const Eight& factors) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x.values[i] *= factors.values[i];
  }
  return codes_of(x, 1.0F);
}

// Byte `i` of eight.
__device__ std::uint32_t byte_of(const uint2& bytes, int i) {
  return ((i < 4 ? bytes.x : bytes.y) >> (i % 4 * 8)) & 0xFFU;
}

// A tile of the transpose. A thread reads eight columns of four rows, and writes four rows of a
// column, which are a word.
__global__ void __launch_bounds__(kCodeThreads)
    transpose_codes_kernel(Fp8RowsTo out, const float* largest, const bf16* x, int rows, int cols) {
  constexpr int kGroups = kCodeTileColumns / 8;
  __shared__ std::uint32_t words[kCodeTileColumns]
                                [kCodeTileRows / 4 + 1];  // padded against conflicts
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.x) * kCodeTileRows;
  const int first_column = static_cast<int>(blockIdx.y) * kCodeTileColumns;
  const int group = thread % kGroups;
  const int quad = thread / kGroups;
  const int column = first_column + 8 * group;
  const int row = first_row + 4 * quad;
  if (column < cols && row < rows) {
    Eight factors = load_eight(largest + column);
    for (float& factor : factors.values) {
      factor = scale_of(factor).factor;
    }
    uint2 codes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      codes[i] =
          codes_of_columns(load_eight(x + std::size_t{1} * (row + i) * cols + column), factors);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[8 * group + i][quad] = byte_of(codes[0], i) | (byte_of(codes[1], i) << 8) |
                                   (byte_of(codes[2], i) << 16) | (byte_of(codes[3], i) << 24);
    }
  }
  __syncthreads();
  const int lane = thread % kLanes;
  for (int i = thread / kLanes; i < kCodeTileColumns; i += kCodeWarps) {
    if (first_column + i < cols && first_row + 4 * lane < rows) {
      auto* to = reinterpret_cast<std::uint32_t*>(
          out.codes + std::size_t{1} * (first_column + i) * rows + first_row);
      to[lane] = words[i][lane];
    }
  }
  if (const int own = first_column + thread;
      blockIdx.x == 0 && thread < kCodeTileColumns && own < cols) {
    out.scales[own] = scale_of(largest[own]).scale;
  }
}

}  // namespace

void quantize_columns(const Fp8RowsTo& out, const bf16* x, int rows, int cols, float* largest,
                      cudaStream_t stream) {
  winnow::cuda::check(
      cudaMemsetAsync(largest, 0, static_cast<std::size_t>(cols) * sizeof(float), stream), "fill");
  const dim3 maxima(static_cast<unsigned>(blocks_for(rows, kMaximaRows)),
                    static_cast<unsigned>(blocks_for(cols, kCodeThreads)));
  column_maxima_kernel<<<maxima, kCodeThreads, 0, stream>>>(largest, x, rows, cols);
  winnow::cuda::check_launch("largest magnitudes of columns");
  const dim3 tiles(static_cast<unsigned>(blocks_for(rows, kCodeTileRows)),
                   static_cast<unsigned>(blocks_for(cols, kCodeTileColumns)));
  transpose_codes_kernel<<<tiles, kCodeThreads, 0, stream>>>(out, largest, x, rows, cols);
  winnow::cuda::check_launch("codes of columns");
}

}  // namespace winnow::ops::cuda
