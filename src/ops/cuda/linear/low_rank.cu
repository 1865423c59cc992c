#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/linear/low_rank.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
// Rows per block: neighbours with the same products, as in a prompt, read their weights once.
constexpr int kTileRows = 8;
// Steps of few rows have a block per row instead, so that the device is busy.
constexpr int kFewRows = 128;

struct Parts {
  LowRankPart part[kMostLowRankParts];
};

__device__ float dot(const Eight& a, const Eight& b) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum += a.values[i] * b.values[i];
  }
  return sum;
}

// f(product, first row, rows) for each run of the block's rows with the same product.
template <int Tile, class F>
__device__ void each_run(const LowRankRows& rows, int count, int product, const F& f) {
  const int end = min((static_cast<int>(blockIdx.x) + 1) * Tile, count);
  for (int first = static_cast<int>(blockIdx.x) * Tile; first < end;) {
    const LowRankProduct* own = rows.products[first];
    int next = first + 1;
    while (next < end && rows.products[next] == own) {
      ++next;
    }
    if (own != nullptr && own[product].down != nullptr) {
      f(own[product], first, next - first);
    }
    first = next;
  }
}

// inner = scale * down x. A warp per row of `down`.
template <int Tile>
__global__ void __launch_bounds__(kThreads)
    down_kernel(LowRankRows rows, const bf16* x, LowRankShape shape, Parts parts) {
  winnow::cuda::wait_for_predecessor();
  const int lane = threadIdx.x % kWarp;
  const int part = blockIdx.y;
  each_run<Tile>(
      rows, shape.rows, parts.part[part].product,
      [&](const LowRankProduct& product, int first, int count) {
        for (int r = threadIdx.x / kWarp; r < product.rank; r += kThreads / kWarp) {
          const bf16* weights = product.down + static_cast<std::size_t>(r) * shape.inputs;
          float sums[Tile] = {};
          for (int col = lane * 8; col < shape.inputs; col += kWarp * 8) {
            const Eight weight = load_eight(weights + col);
#pragma unroll
            for (int i = 0; i < Tile; ++i) {
              if (i < count) {
                const std::size_t row = static_cast<std::size_t>(first + i) * shape.inputs;
                sums[i] += dot(weight, load_eight(x + row + col));
              }
            }
          }
#pragma unroll
          for (int i = 0; i < Tile; ++i) {
            for (int other = kWarp / 2; other > 0; other /= 2) {
              sums[i] += __shfl_xor_sync(0xFFFFFFFFU, sums[i], other);
            }
            if (lane == 0 && i < count) {
              const std::size_t row = static_cast<std::size_t>(part) * shape.rows + first + i;
              rows.inner[row * rows.rank + r] = sums[i] * product.scale;
            }
          }
        }
      });
}

__device__ void add_to(float& out, float x) {
  out += x;
}
__device__ void add_to(bf16& out, float x) {
  out = to_bf16(to_float(out) + x);
}

// out += up inner. A thread per row of `up`.
template <int Tile, class T>
__global__ void __launch_bounds__(kThreads)
    up_kernel(LowRankRows rows, T* out, LowRankShape shape, Parts parts) {
  winnow::cuda::wait_for_predecessor();
  const int index = blockIdx.z;
  const LowRankPart part = parts.part[index];
  const int output = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (output >= part.outputs) {
    return;
  }
  each_run<Tile>(
      rows, shape.rows, part.product, [&](const LowRankProduct& product, int first, int count) {
        const bf16* weights = product.up + static_cast<std::size_t>(output) * product.rank;
        const float* inner =
            rows.inner + (static_cast<std::size_t>(index) * shape.rows + first) * rows.rank;
        float sums[Tile] = {};
        for (int r = 0; r < product.rank; r += 8) {
          const Eight weight = load_eight(weights + r);
#pragma unroll
          for (int i = 0; i < Tile; ++i) {
            if (i < count) {
              sums[i] +=
                  dot(weight, load_eight(inner + static_cast<std::size_t>(i) * rows.rank + r));
            }
          }
        }
#pragma unroll
        for (int i = 0; i < Tile; ++i) {
          if (i < count) {
            add_to(out[static_cast<std::size_t>(first + i) * shape.stride + part.column + output],
                   sums[i]);
          }
        }
      });
}

template <int Tile, class T>
void launch_parts(T* out, const bf16* x, const LowRankShape& shape, const Parts& parts, int count,
                  int most_outputs, const LowRankRows& rows, cudaStream_t stream) {
  const unsigned tiles = (shape.rows + Tile - 1) / Tile;
  const unsigned columns = (most_outputs + kThreads - 1) / kThreads;
  winnow::cuda::launch(down_kernel<Tile>, dim3(tiles, count), kThreads, 0, stream, true, rows, x,
                       shape, parts);
  winnow::cuda::launch(up_kernel<Tile, T>, dim3(tiles, columns, count), kThreads, 0, stream, true,
                       rows, out, shape, parts);
}

template <class T>
void add(T* out, const bf16* x, const LowRankShape& shape, std::span<const LowRankPart> parts,
         const LowRankRows& rows, cudaStream_t stream) {
  if (rows.products == nullptr || shape.rows == 0) {
    return;
  }
  Parts all{};
  std::ranges::copy(parts, all.part);
  const int count = static_cast<int>(parts.size());
  const int outputs = std::ranges::max(parts, {}, &LowRankPart::outputs).outputs;
  if (shape.rows <= kFewRows) {
    launch_parts<1>(out, x, shape, all, count, outputs, rows, stream);
  } else {
    launch_parts<kTileRows>(out, x, shape, all, count, outputs, rows, stream);
  }
}

}  // namespace

void add_low_rank(float* out, const bf16* x, const LowRankShape& shape,
                  std::span<const LowRankPart> parts, const LowRankRows& rows,
                  cudaStream_t stream) {
  add(out, x, shape, parts, rows, stream);
}

void add_low_rank(bf16* out, const bf16* x, const LowRankShape& shape,
                  std::span<const LowRankPart> parts, const LowRankRows& rows,
                  cudaStream_t stream) {
  add(out, x, shape, parts, rows, stream);
}

}  // namespace winnow::ops::cuda
