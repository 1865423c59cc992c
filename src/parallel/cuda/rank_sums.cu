#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "parallel/cuda/rank_sums.h"
#include "parallel/cuda/row_exchange.cuh"

namespace winnow::parallel::cuda {
namespace {

constexpr int kThreads = 1024;  // enough to keep the links busy
constexpr int kRowThreads = 1024;

__device__ void store_release(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ bool has_come(std::uint32_t flag, std::uint32_t epoch) {
  return static_cast<std::int32_t>(flag - epoch) >= 0;
}

// Sets the flag for which the same block of `peer` waits.
__device__ void arrive(const Arrivals& arrivals, int peer, std::uint32_t epoch) {
  store_release(arrivals.flags[peer] + arrivals.rank * kMostBlocks + blockIdx.x, epoch);
}

__device__ void wait_for(const Arrivals& arrivals, int peer, std::uint32_t epoch) {
  const std::uint32_t* flag = arrivals.flags[arrivals.rank] + peer * kMostBlocks + blockIdx.x;
  wait_until([&] { return has_come(load_acquire(flag), epoch); });
}

struct Eight {
  float values[8];
};

__device__ Eight load_eight(const float* from) {
  Eight eight;
  *reinterpret_cast<float4*>(eight.values) = *reinterpret_cast<const float4*>(from);
  *reinterpret_cast<float4*>(eight.values + 4) = *reinterpret_cast<const float4*>(from + 4);
  return eight;
}

__device__ Eight load_eight(const bf16* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    eight.values[2 * i] = __uint_as_float(words[i] << 16);
    eight.values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
  return eight;
}

__device__ void store_eight(float* to, const Eight& eight) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(eight.values);
  *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(eight.values + 4);
}

// Adds up this thread's share of the values.
template <class Number>
__device__ void add_up(const Parts& parts, int ranks, float* sum, bool add, std::size_t count) {
  const std::size_t stride = std::size_t{8} * kThreads * gridDim.x;
  for (std::size_t i = std::size_t{8} * (std::size_t{blockIdx.x} * kThreads + threadIdx.x);
       i < count; i += stride) {
    Eight total{};
    for (int rank = 0; rank < ranks; ++rank) {
      const Eight part = load_eight(static_cast<const Number*>(parts.of[rank]) + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        total.values[k] += part.values[k];
      }
    }
    if (add) {
      const Eight before = load_eight(sum + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        total.values[k] += before.values[k];
      }
    }
    store_eight(sum + i, total);
  }
}

__global__ void __launch_bounds__(kThreads)
    complete_kernel(const __grid_constant__ Parts parts, int ranks, float* sum, bool add,
                    std::size_t count) {
  add_up<float>(parts, ranks, sum, add, count);
}

// When a peer's kernel has begun, the peer's part is complete.
template <class Number>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ Arrivals arrivals, const __grid_constant__ Parts parts,
               float* sum, bool add, std::size_t count) {
  winnow::cuda::wait_for_predecessor();
  const std::uint32_t epoch = arrivals.epochs[blockIdx.x] + 1;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < arrivals.ranks && peer != arrivals.rank) {
    arrive(arrivals, peer, epoch);
    wait_for(arrivals, peer, epoch);
  }
  __syncthreads();
  add_up<Number>(parts, arrivals.ranks, sum, add, count);
  if (threadIdx.x == 0) {
    arrivals.epochs[blockIdx.x] = epoch;
  }
}

__device__ float sum_over_block(float value) {
  __shared__ float sums[kRowThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, lane);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = value;
  }
  __syncthreads();
  float total = 0.0F;
  for (const float part : sums) {
    total += part;
  }
  return total;
}

// Passes skip number 0: memory is zeroed, and epoch 0 would look as if data had arrived.
__device__ std::uint32_t next_pass(std::uint32_t pass) {
  constexpr std::uint32_t kPasses = 0xFFFFFFFFU / kMostSums;
  return pass < kPasses ? pass + 1 : 1;
}

// A block per row.
__global__ void __launch_bounds__(kRowThreads) row_kernel(const __grid_constant__ RowSums rows) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const RowInboxes& inboxes = *rows.inboxes;
  const bool begins = rows.number == 0;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * rows.cols;
  const std::uint32_t pass = begins ? next_pass(*inboxes.passes) : *inboxes.passes;
  const std::uint32_t epoch = pass * kMostSums + rows.number;
  float squares = 0.0F;
  for (int col = threadIdx.x; col < rows.cols; col += kRowThreads) {
    const std::size_t at = first + col;
    float total = sum_over_ranks(inboxes, rows.number, epoch, at, rows.part[at]);
    total += begins ? 0.0F : rows.sum[at];
    rows.sum[at] = total;
    if (rows.norm_weight != nullptr) {
      rows.normed[at] = {__bfloat16_as_ushort(__float2bfloat16_rn(total * rows.norm_weight[col]))};
      squares += total * total;
    }
  }
  squares = sum_over_block(squares);
  if (threadIdx.x != 0) {
    return;
  }
  if (rows.norm_weight != nullptr) {
    rows.square_sums[blockIdx.x] = squares;
  }
  if (begins && atomicAdd(inboxes.arrived, 1U) + 1 == gridDim.x) {  // all blocks have read it
    *inboxes.arrived = 0;
    *inboxes.passes = pass;
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ Arrivals arrivals,
                  const __grid_constant__ GatheredColumns columns) {
  winnow::cuda::wait_for_predecessor();
  const std::uint32_t epoch = arrivals.epochs[blockIdx.x] + 1;
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_first = arrivals.rank == 0;
  if (is_first && peer > 0 && peer < arrivals.ranks) {  // rank 0's last result is used up
    arrive(arrivals, peer, epoch);
  } else if (!is_first && peer == 0) {
    wait_for(arrivals, 0, epoch);
  }
  __syncthreads();
  for (int row = 0; row < columns.rows; ++row) {
    const float* own = columns.own + static_cast<std::size_t>(row) * columns.cols;
    float* to = columns.whole + static_cast<std::size_t>(row) * columns.stride + columns.first;
    for (int col = blockIdx.x * kThreads + threadIdx.x; col < columns.cols;
         col += gridDim.x * kThreads) {
      to[col] = own[col];
    }
  }
  __threadfence_system();
  __syncthreads();
  if (!is_first && peer == 0) {
    arrive(arrivals, 0, epoch);
  } else if (is_first && peer > 0 && peer < arrivals.ranks) {
    wait_for(arrivals, peer, epoch);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrivals.epochs[blockIdx.x] = epoch;
  }
}

int blocks_for(std::size_t items) {
  return static_cast<int>(
      std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks));
}

}  // namespace

void sum_parts(const Arrivals& arrivals, const Parts& parts, float* sum, bool add,
               std::size_t count, cudaStream_t stream) {
  const auto kernel = parts.in_16_bits ? sum_kernel<bf16> : sum_kernel<float>;
  winnow::cuda::launch(kernel, blocks_for(count / 8), kThreads, 0, stream, false, arrivals, parts,
                       sum, add, count);
}

void sum_complete_parts(const Parts& parts, int ranks, float* sum, bool add, std::size_t count,
                        cudaStream_t stream) {
  if (count > 0) {
    winnow::cuda::launch(complete_kernel, blocks_for(count / 8), kThreads, 0, stream, false, parts,
                         ranks, sum, add, count);
  }
}

void sum_rows(const RowSums& rows, cudaStream_t stream) {
  winnow::cuda::launch(row_kernel, rows.rows, kRowThreads, 0, stream, true, rows);
}

void gather_columns(const Arrivals& arrivals, const GatheredColumns& columns, cudaStream_t stream) {
  // The same number of blocks on every rank, though ranks differ in columns.
  const auto blocks = blocks_for(static_cast<std::size_t>(columns.stride) / arrivals.ranks);
  winnow::cuda::launch(gather_kernel, blocks, kThreads, 0, stream, false, arrivals, columns);
}

}  // namespace winnow::parallel::cuda
