// Epilogues of a batch's products: parts are added up, and the next layer's input is packed.
#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/linear/packed_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;     // each has eight columns of a row
constexpr int kRowThreads = 512;  // in a block with a whole row
constexpr int kColumnsOfThread = 8;

// The successor may begin at once, while the product before this kernel is computed. The successor
// is the next product, which reads weights until this kernel is complete, or an append, which reads
// data that was complete before that product waited for its predecessor.
__device__ void begin() {
  winnow::cuda::release_successor();
  winnow::cuda::wait_for_predecessor();
}

__device__ void add(Eight& sum, const Eight& x) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum.values[i] += x.values[i];
  }
}

constexpr int kAtOnce = 4;  // parts in flight

// Eight columns of a row, from `column` on, in all parts.
__device__ Eight sum_of(const SmallBatchProduct& product, int row, int column) {
  const std::size_t part =
      static_cast<std::size_t>(product.rows) * static_cast<std::size_t>(product.cols);
  const float* from = product.sums + static_cast<std::size_t>(row) * product.cols + column;
  Eight sum;
  for (int first = 0; first < product.parts; first += kAtOnce) {
    Eight parts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < product.parts) {
        parts[i] = load_eight(from + (first + i) * part);
      }
    }
#pragma unroll
    for (const Eight& x : parts) {
      add(sum, x);
    }
  }
  return sum;
}

__device__ float silu(float x) {
  return __fdividef(x, 1.0F + __expf(-x));
}

__device__ int column_of_thread() {
  return static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kColumnsOfThread;
}

dim3 grid_of(int rows, int cols) {
  constexpr int kColumns = kThreads * kColumnsOfThread;
  return dim3(static_cast<unsigned>((cols + kColumns - 1) / kColumns), static_cast<unsigned>(rows));
}

__global__ void __launch_bounds__(kThreads) store_kernel(float* y, SmallBatchProduct product) {
  begin();
  const int row = blockIdx.y;
  const int column = column_of_thread();
  if (column < product.cols) {
    store_eight(y + static_cast<std::size_t>(row) * product.cols + column,
                sum_of(product, row, column));
  }
}

__global__ void __launch_bounds__(kThreads)
    gate_kernel(PackedView y, SmallBatchProduct product, const float* bias) {
  begin();
  const int row = blockIdx.y;
  const int column = column_of_thread();
  const int half = product.cols / 2;
  if (column >= half) {
    return;
  }
  Eight gate = sum_of(product, row, column);
  Eight up = sum_of(product, row, half + column);
  if (bias != nullptr) {
    add(gate, load_eight(bias + column));
    add(up, load_eight(bias + half + column));
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    gate.values[i] = silu(gate.values[i]) * up.values[i];
  }
  y.store(row, column, gate);
}

__global__ void __launch_bounds__(kThreads)
    pack_kernel(PackedView packed, const bf16* x, int cols) {
  begin();
  const int row = blockIdx.y;
  const int column = column_of_thread();
  if (column < cols) {
    packed.store(row, column, load_eight(x + static_cast<std::size_t>(row) * cols + column));
  }
}

// A block per row; a thread has up to kMost groups of eight columns.
template <int kMost>
__global__ void __launch_bounds__(kRowThreads, 2)
    norm_kernel(float* hidden, SmallBatchProduct product, const float* bias,
                const float* norm_weight, float eps, PackedView normed, int cols) {
  winnow::cuda::release_successor();
  const int row = blockIdx.x;
  float* const x = hidden + static_cast<std::size_t>(row) * cols;
  const auto column = [](int i) {
    return (i * kRowThreads + static_cast<int>(threadIdx.x)) * kColumnsOfThread;
  };
  Eight weights[kMost];  // available before the product is
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (column(i) < cols) {
      weights[i] = load_eight(norm_weight + column(i));
    }
  }
  winnow::cuda::wait_for_predecessor();
  Eight sums[kMost];
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (column(i) >= cols) {
      continue;
    }
    sums[i] = load_eight(x + column(i));
    if (product.parts > 0) {
      add(sums[i], sum_of(product, row, column(i)));
      if (bias != nullptr) {
        add(sums[i], load_eight(bias + column(i)));
      }
      store_eight(x + column(i), sums[i]);
    }
#pragma unroll
    for (const float value : sums[i].values) {
      squares += value * value;
    }
  }
  const float factor = rsqrtf(block_sum<kRowThreads>(squares) / static_cast<float>(cols) + eps);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (column(i) < cols) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sums[i].values[j] *= factor * weights[i].values[j];
      }
      normed.store(row, column(i), sums[i]);
    }
  }
}

}  // namespace

void store_product(float* y, const SmallBatchProduct& product, cudaStream_t stream) {
  winnow::cuda::launch(store_kernel, grid_of(product.rows, product.cols), kThreads, 0, stream, true,
                       y, product);
}

void gate_product(const PackedRows& y, const SmallBatchProduct& product, const float* bias,
                  cudaStream_t stream) {
  winnow::cuda::launch(gate_kernel, grid_of(product.rows, product.cols / 2), kThreads, 0, stream,
                       true, PackedView(y), product, bias);
}

void pack_rows(const PackedRows& packed, const bf16* x, cudaStream_t stream) {
  winnow::cuda::launch(pack_kernel, grid_of(packed.rows, packed.cols), kThreads, 0, stream, true,
                       PackedView(packed), x, packed.cols);
}

void launch_add_and_norm(float* hidden, const SmallBatchProduct& product, const float* bias,
                         const float* norm_weight, float eps, const PackedRows& normed,
                         cudaStream_t stream) {
  constexpr int kColumns = kRowThreads * kColumnsOfThread;
  static_assert(kMostNormColumns == 4 * kColumns);
  const auto kernel = normed.cols <= kColumns       ? norm_kernel<1>
                      : normed.cols <= 2 * kColumns ? norm_kernel<2>
                                                    : norm_kernel<4>;
  winnow::cuda::launch(kernel, normed.rows, kRowThreads, 0, stream, true, hidden, product, bias,
                       norm_weight, eps, PackedView(normed), normed.cols);
}

}  // namespace winnow::ops::cuda
