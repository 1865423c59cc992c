// What becomes of a batch's products: parts are added up, and the next layer's input is packed.
#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/packed_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;     // each eight columns of a row
constexpr int kRowThreads = 512;  // of a block that has a row
constexpr int kColumnsOfThread = 8;

// The successor reads weights until this kernel is complete, and nothing else.
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

// Eight columns of a row, from `column` on, in all parts.
__device__ Eight sum_of(const BatchProduct& product, int row, int column) {
  const std::size_t part =
      static_cast<std::size_t>(product.rows) * static_cast<std::size_t>(product.cols);
  const float* from = product.sums + static_cast<std::size_t>(row) * product.cols + column;
  Eight sum = load_eight(from);
#pragma unroll 8
  for (int i = 1; i < product.parts; ++i) {
    add(sum, load_eight(from + i * part));
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

__global__ void __launch_bounds__(kThreads) store_kernel(float* y, BatchProduct product) {
  begin();
  const int row = blockIdx.y;
  const int column = column_of_thread();
  if (column < product.cols) {
    store_eight(y + static_cast<std::size_t>(row) * product.cols + column,
                sum_of(product, row, column));
  }
}

__global__ void __launch_bounds__(kThreads)
    gate_kernel(PackedView y, BatchProduct product, const float* bias) {
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

// A row's block; what it writes to `hidden` it reads again itself.
__global__ void __launch_bounds__(kRowThreads, 2)
    norm_kernel(float* hidden, BatchProduct product, const float* bias, const float* norm_weight,
                float eps, PackedView normed, int cols) {
  begin();
  const int row = blockIdx.x;
  float* const x = hidden + static_cast<std::size_t>(row) * cols;
  float squares = 0.0F;
  const int first = static_cast<int>(threadIdx.x) * kColumnsOfThread;
  for (int column = first; column < cols; column += kRowThreads * kColumnsOfThread) {
    Eight sum = load_eight(x + column);
    if (product.parts > 0) {
      add(sum, sum_of(product, row, column));
      if (bias != nullptr) {
        add(sum, load_eight(bias + column));
      }
      store_eight(x + column, sum);
    }
#pragma unroll
    for (const float value : sum.values) {
      squares += value * value;
    }
  }
  const float factor = rsqrtf(block_sum<kRowThreads>(squares) / static_cast<float>(cols) + eps);
  for (int column = first; column < cols; column += kRowThreads * kColumnsOfThread) {
    Eight value = load_eight(x + column);
    const Eight weight = load_eight(norm_weight + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value.values[i] *= factor * weight.values[i];
    }
    normed.store(row, column, value);
  }
}

}  // namespace

void store_product(float* y, const BatchProduct& product, cudaStream_t stream) {
  winnow::cuda::launch(store_kernel, grid_of(product.rows, product.cols), kThreads, 0, stream, true,
                       y, product);
}

void gate_product(const PackedRows& y, const BatchProduct& product, const float* bias,
                  cudaStream_t stream) {
  winnow::cuda::launch(gate_kernel, grid_of(product.rows, product.cols / 2), kThreads, 0, stream,
                       true, PackedView(y), product, bias);
}

void pack_rows(const PackedRows& packed, const bf16* x, cudaStream_t stream) {
  winnow::cuda::launch(pack_kernel, grid_of(packed.rows, packed.cols), kThreads, 0, stream, true,
                       PackedView(packed), x, packed.cols);
}

void add_and_norm(float* hidden, const BatchProduct& product, const float* bias,
                  const float* norm_weight, float eps, const PackedRows& normed,
                  cudaStream_t stream) {
  winnow::cuda::launch(norm_kernel, normed.rows, kRowThreads, 0, stream, true, hidden, product,
                       bias, norm_weight, eps, PackedView(normed), normed.cols);
}

}  // namespace winnow::ops::cuda
