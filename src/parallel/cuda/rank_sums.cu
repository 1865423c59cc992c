#include <cuda_bf16.h>

#include <algorithm>
#include <type_traits>

#include "base/cuda/launch.cuh"
#include "parallel/cuda/rank_flags.cuh"
#include "parallel/cuda/rank_sums.h"
#include "parallel/cuda/row_exchange.cuh"

namespace winnow::parallel::cuda {
namespace {

constexpr int kThreads = 1024;  // enough to keep the links busy
constexpr int kRowThreads = 1024;

// Sets the flag for which the same block of `peer` waits.
__device__ void arrive(const Arrivals& arrivals, int peer, std::uint32_t epoch) {
  store_release(arrivals.flags[peer] + arrivals.rank * kMostBlocks + blockIdx.x, epoch);
}

__device__ void wait_for(const Arrivals& arrivals, int peer, std::uint32_t epoch) {
  const std::uint32_t* flag = arrivals.flags[arrivals.rank] + peer * kMostBlocks + blockIdx.x;
  wait_until([&] { return has_come(load_acquire(flag), epoch); });
}

// Numbers that a thread loads at once.
template <class Number>
constexpr int kLoaded = 16 / sizeof(Number);

template <class Number>
struct Values {
  float of[kLoaded<Number>];
};

template <class Number>
__device__ Values<Number> unpack(const uint4& bits);

template <>
__device__ Values<float> unpack<float>(const uint4& bits) {
  return {{__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
           __uint_as_float(bits.w)}};
}

template <>
__device__ Values<bf16> unpack<bf16>(const uint4& bits) {
  const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  Values<bf16> values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.of[2 * i] = __uint_as_float(words[i] << 16);
    values.of[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
  return values;
}

__device__ void store(float* to, const Values<float>& values) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(values.of);
}

__device__ void store(bf16* to, const Values<bf16>& values) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values.of[2 * i], values.of[2 * i + 1]);
    words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
}

// sum = or += values.
template <class Number>
__device__ void put(float* sum, const Values<Number>& values, bool add) {
#pragma unroll
  for (int i = 0; i < kLoaded<Number>; i += 4) {
    float4 four = {values.of[i], values.of[i + 1], values.of[i + 2], values.of[i + 3]};
    auto* to = reinterpret_cast<float4*>(sum + i);
    if (add) {
      const float4 before = *to;
      four = {four.x + before.x, four.y + before.y, four.z + before.z, four.w + before.w};
    }
    *to = four;
  }
}

// The numbers from `at` of all parts. All loads are under way before the first is used.
template <class Number, int kRanks>
struct LoadedParts {
  uint4 bits[kRanks];

  __device__ LoadedParts(const Parts& parts, std::size_t at) {
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      bits[rank] = *reinterpret_cast<const uint4*>(static_cast<const Number*>(parts.of[rank]) + at);
    }
  }

  // In the order of ranks.
  [[nodiscard]] __device__ Values<Number> sum() const {
    Values<Number> total{};
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      const Values<Number> part = unpack<Number>(bits[rank]);
#pragma unroll
      for (int i = 0; i < kLoaded<Number>; ++i) {
        total.of[i] += part.of[i];
      }
    }
    return total;
  }
};

// Calls use(i) for the first of each kLoaded numbers of `count` that are this thread's.
template <class Number, class Use>
__device__ void for_own(std::size_t count, const Use& use) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{kLoaded<Number>} * blockDim.x * gridDim.x;
  for (std::size_t i = kLoaded<Number> * thread; i < count; i += stride) {
    use(i);
  }
}

// Adds up this thread's numbers.
template <class Number, int kRanks>
__device__ void add_up(const Parts& parts, float* sum, bool add, std::size_t count) {
  for_own<Number>(count, [&](std::size_t i) {
    put(sum + i, LoadedParts<Number, kRanks>(parts, i).sum(), add);
  });
}

template <class Number, int kRanks>
__global__ void __launch_bounds__(kThreads)
    complete_kernel(const __grid_constant__ Parts parts, float* sum, bool add, std::size_t count) {
  add_up<Number, kRanks>(parts, sum, add, count);
}

// Waits for this block of every peer.
__device__ void meet_peers(const Arrivals& arrivals, std::uint32_t epoch) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < arrivals.ranks && peer != arrivals.rank) {
    arrive(arrivals, peer, epoch);
    wait_for(arrivals, peer, epoch);
  }
  __syncthreads();
}

// When a peer's kernel has begun, the peer's part is complete.
template <class Number, int kRanks>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ Arrivals arrivals, const __grid_constant__ Parts parts,
               float* sum, bool add, std::size_t count) {
  winnow::cuda::wait_for_predecessor();
  const std::uint32_t epoch = arrivals.epochs[blockIdx.x] + 1;
  meet_peers(arrivals, epoch);
  add_up<Number, kRanks>(parts, sum, add, count);
  if (threadIdx.x == 0) {
    arrivals.epochs[blockIdx.x] = epoch;
  }
}

// The numbers of each rank's share: lines of 128 bytes of either type.
__host__ __device__ std::size_t share_of(std::size_t count, int ranks) {
  constexpr std::size_t kLine = 64;
  return (count + ranks * kLine - 1) / (ranks * kLine) * kLine;
}

// The sum in two steps (reduce-scatter and all-gather). A rank adds up its share of the numbers and
// leaves the sums in its own part, of which no peer reads these numbers. Then it takes the sums of
// the other shares from the peers. A block reads the same numbers of each share, so it waits for
// the same block of the peers only.
template <class Number, int kRanks>
__global__ void __launch_bounds__(kThreads)
    share_kernel(const __grid_constant__ Arrivals arrivals, const __grid_constant__ Parts parts,
                 float* sum, bool add, std::size_t count) {
  winnow::cuda::wait_for_predecessor();
  const std::size_t share = share_of(count, kRanks);
  const std::size_t first = share * arrivals.rank;
  auto* own = static_cast<Number*>(const_cast<void*>(parts.of[arrivals.rank]));
  const std::uint32_t epoch = arrivals.epochs[blockIdx.x] + 1;
  meet_peers(arrivals, epoch);
  for_own<Number>(share, [&](std::size_t i) {
    if (first + i < count) {
      store(own + first + i, LoadedParts<Number, kRanks>(parts, first + i).sum());
    }
  });
  __threadfence_system();
  __syncthreads();
  meet_peers(arrivals, epoch + 1);
  for_own<Number>(share, [&](std::size_t i) {
    uint4 sums[kRanks];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (const std::size_t at = share * rank + i; at < count) {
        const auto* from = static_cast<const Number*>(parts.of[rank]) + at;
        sums[rank] = *reinterpret_cast<const uint4*>(from);
      }
    }
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) {
      if (const std::size_t at = share * rank + i; at < count) {
        put(sum + at, unpack<Number>(sums[rank]), add);
      }
    }
  });
  if (threadIdx.x == 0) {
    arrivals.epochs[blockIdx.x] = epoch + 1;
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
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * rows.cols;
  const std::uint32_t pass = next_pass(*inboxes.passes);
  float squares = 0.0F;
  for (int col = threadIdx.x; col < rows.cols; col += kRowThreads) {
    const std::size_t at = first + col;
    const float total = sum_over_ranks(inboxes, 0, pass * kMostSums, at, rows.part[at]);
    rows.sum[at] = total;
    rows.normed[at] = {__bfloat16_as_ushort(__float2bfloat16_rn(total * rows.norm_weight[col]))};
    squares += total * total;
  }
  squares = sum_over_block(squares);
  if (threadIdx.x != 0) {
    return;
  }
  rows.square_sums[blockIdx.x] = squares;
  if (atomicAdd(inboxes.arrived, 1U) + 1 == gridDim.x) {  // all blocks have read the old number
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

int blocks_for(std::size_t items, int threads) {
  return static_cast<int>(std::clamp<std::size_t>((items + threads - 1) / threads, 1, kMostBlocks));
}

// Few threads a block for few numbers, so that they are spread over the multiprocessors.
int threads_for(std::size_t items) {
  constexpr int kFew = 256;
  return items <= std::size_t{kFew} * kMostBlocks ? kFew : kThreads;
}

// Whether it is worth a second wait to read 2 / ranks of each part instead of all of it. Never with
// two ranks.
bool sums_shares(int ranks, std::size_t bytes) {
  constexpr std::size_t kLeastSaved = std::size_t{512} << 10U;  // some 2 microseconds of a link
  const std::size_t peers = ranks - 1;
  return ranks > 2 && peers * bytes * (ranks - 2) / ranks >= kLeastSaved;
}

template <class Number, int kRanks>
void launch_sum(const Arrivals& arrivals, const Parts& parts, float* sum, bool add,
                std::size_t count, cudaStream_t stream) {
  const bool shares = sums_shares(kRanks, count * sizeof(Number));
  const std::size_t items = (shares ? share_of(count, kRanks) : count) / kLoaded<Number>;
  const int threads = threads_for(items);
  winnow::cuda::launch(shares ? share_kernel<Number, kRanks> : sum_kernel<Number, kRanks>,
                       blocks_for(items, threads), threads, 0, stream, false, arrivals, parts, sum,
                       add, count);
}

// Calls use(std::integral_constant<int, ranks>).
template <int kRanks = 1, class Use>
void with_ranks(int ranks, const Use& use) {
  if (ranks == kRanks) {
    use(std::integral_constant<int, kRanks>());
  } else if constexpr (kRanks < kMostRanks) {
    with_ranks<kRanks + 1>(ranks, use);
  }
}

}  // namespace

void sum_parts(const Arrivals& arrivals, const Parts& parts, float* sum, bool add,
               std::size_t count, cudaStream_t stream) {
  with_ranks(arrivals.ranks, [&](auto ranks) {
    const auto launch = parts.in_16_bits ? launch_sum<bf16, ranks()> : launch_sum<float, ranks()>;
    launch(arrivals, parts, sum, add, count, stream);
  });
}

void sum_complete_parts(const Parts& parts, int ranks, float* sum, bool add, std::size_t count,
                        cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  with_ranks(ranks, [&](auto known) {
    const auto kernel =
        parts.in_16_bits ? complete_kernel<bf16, known()> : complete_kernel<float, known()>;
    const std::size_t loaded = parts.in_16_bits ? kLoaded<bf16> : kLoaded<float>;
    winnow::cuda::launch(kernel, blocks_for(count / loaded, kThreads), kThreads, 0, stream, false,
                         parts, sum, add, count);
  });
}

void sum_rows(const RowSums& rows, cudaStream_t stream) {
  winnow::cuda::launch(row_kernel, rows.rows, kRowThreads, 0, stream, true, rows);
}

void gather_columns(const Arrivals& arrivals, const GatheredColumns& columns, cudaStream_t stream) {
  // The same number of blocks on every rank, though ranks differ in columns.
  const auto blocks =
      blocks_for(static_cast<std::size_t>(columns.stride) / arrivals.ranks, kThreads);
  winnow::cuda::launch(gather_kernel, blocks, kThreads, 0, stream, false, arrivals, columns);
}

}  // namespace winnow::parallel::cuda
