#include "ops/cuda/linear/fp8_rows.h"

#include <cuda_fp8.h>

#include <cfloat>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

// Eight codes of values that fit.
__device__ uint2 codes_of(const Eight& x, float factor) {
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float2 pair{x.values[i] * factor, x.values[i + 1] * factor};
    words[i / 4] |= std::uint32_t{__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3)}
                    << (i % 4 * 8);
  }
  return {words[0], words[1]};
}

__device__ float largest_of(const Eight& x) {
  float largest = 0.0F;
#pragma unroll
  for (const float value : x.values) {
    largest = fmaxf(largest, fabsf(value));
    largest = isnan(value) ? INFINITY : largest;
  }
  return largest;
}

__device__ float block_max(float x) {
  __shared__ float parts[kThreads / kLanes];
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0U, x, distance));
  }
  if (threadIdx.x % kLanes == 0) {
    parts[threadIdx.x / kLanes] = x;
  }
  __syncthreads();
  for (const float part : parts) {
    x = fmaxf(x, part);
  }
  return x;
}

// A block per row, of which a thread keeps the first kKept pieces in registers.
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(std::uint8_t* codes, float* scales, const bf16* x, int cols) {
  constexpr int kKept = 4;
  winnow::cuda::wait_for_predecessor();
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  const int begin = 8 * static_cast<int>(threadIdx.x);
  Eight kept[kKept];
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int column = begin + i * 8 * kThreads;
    if (column < cols) {
      kept[i] = load_eight(x + first + column);
      largest = fmaxf(largest, largest_of(kept[i]));
    }
  }
  for (int column = begin + kKept * 8 * kThreads; column < cols; column += 8 * kThreads) {
    largest = fmaxf(largest, largest_of(load_eight(x + first + column)));
  }
  largest = block_max(largest);
  const bool vanishes = largest <= kF8E4M3Max / FLT_MAX;
  const float factor = vanishes ? 0.0F : kF8E4M3Max / largest;
  if (threadIdx.x == 0) {
    scales[blockIdx.x] = vanishes ? 0.0F : largest / kF8E4M3Max;
  }
  auto* out = reinterpret_cast<uint2*>(codes + first);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int column = begin + i * 8 * kThreads;
    if (column < cols) {
      out[column / 8] = codes_of(kept[i], factor);
    }
  }
  for (int column = begin + kKept * 8 * kThreads; column < cols; column += 8 * kThreads) {
    out[column / 8] = codes_of(load_eight(x + first + column), factor);
  }
}

// Without its scale a weight is a code exactly.
__global__ void __launch_bounds__(kThreads)
    copy_codes_kernel(std::uint8_t* codes, DeviceWeightView weight, int first) {
  auto* out = reinterpret_cast<uint2*>(codes + std::size_t{blockIdx.x} * weight.cols);
  for (int i = static_cast<int>(threadIdx.x); i < weight.cols / 8; i += kThreads) {
    const WeightPlace<Fp8Weight> place(weight, first + static_cast<int>(blockIdx.x), 8 * i);
    const uint4 piece = *reinterpret_cast<const uint4*>(weight.memory + place.piece);
    const std::uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
    out[i] = {Fp8Weight::codes(words[2 * place.block]),
              Fp8Weight::codes(words[2 * place.block + 1])};
  }
}

}  // namespace

void quantize_rows(std::uint8_t* codes, float* scales, const bf16* x, int rows, int cols,
                   cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(quantize_rows_kernel, static_cast<unsigned>(rows), kThreads, 0, stream,
                         true, codes, scales, x, cols);
  }
}

void copy_codes(std::uint8_t* codes, const DeviceWeightView& weight, int first, int count,
                cudaStream_t stream) {
  if (count > 0) {
    winnow::cuda::launch(copy_codes_kernel, static_cast<unsigned>(count), kThreads, 0, stream,
                         false, codes, weight, first);
  }
}

}  // namespace winnow::ops::cuda
