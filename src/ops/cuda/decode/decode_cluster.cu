// Decode attention of few rows: a cluster of blocks takes a row, cuts it evenly among its warps,
// and reduces their parts through distributed shared memory. There is no second kernel to wait for.
#include <cooperative_groups.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode/decode_parts.cuh"
#include "ops/cuda/decode/decode_run.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarpSize;

// What the cluster's blocks have of the query heads that a block finishes: every so manieth.
template <int D>
struct Received {
  float4 outs[kMostClusterBlocks + kMostGroup][D / 4];
  float2 sums[kMostClusterBlocks + kMostGroup];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <EntryFormat kType, int D>
class ClusterAttention {
 public:
  using Codes = CodesOf<kType>;

  __device__ ClusterAttention(const DecodeArguments& arguments, std::byte* memory)
      : arguments_(arguments),
        cluster_(cooperative_groups::this_cluster()),
        rank_(static_cast<int>(cluster_.block_rank())),
        blocks_(static_cast<int>(cluster_.num_blocks())),
        row_(static_cast<int>(blockIdx.x) / blocks_),
        group_(arguments.group),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        memory_(memory),
        received_(*reinterpret_cast<Received<D>*>(
            memory + kDecodeWarps * warp_bytes(D, kCodeBits<Codes>, group_))) {}

  __device__ void run(StageState<tile_pages(D)>* states) {
    cluster_.barrier_arrive();
    attend(states);
    __syncthreads();
    cluster_.barrier_wait();  // all blocks have begun: their memory may be written
    hand_out();
    cluster_.sync();
    finish();
  }

 private:
  static constexpr int kQuads = D / 4;
  // finish() has a thread for each quad of the heads that a block has.
  static_assert((kMostGroup + kLeastClusterBlocks - 1) / kLeastClusterBlocks * kQuads <= kThreads);

  // A warp's part lies where its pages were.
  [[nodiscard]] __device__ std::byte* part_memory(int warp) const {
    return memory_ + warp * warp_bytes(D, kCodeBits<Codes>, group_) + group_ * D * sizeof(float);
  }
  [[nodiscard]] __device__ float4* outs_of(int warp) const {
    return reinterpret_cast<float4*>(part_memory(warp));
  }
  [[nodiscard]] __device__ float2* sums_of(int warp) const {
    return reinterpret_cast<float2*>(part_memory(warp) + group_ * D * sizeof(float));
  }

  __device__ void attend(StageState<tile_pages(D)>* states) {
    const DecodePlan::Row planned = arguments_.plan.rows[row_];
    const int workers = blocks_ * kDecodeWarps;
    const int worker = rank_ * kDecodeWarps + warp_;
    const int first = planned.tiles * worker / workers;
    const int count = planned.tiles * (worker + 1) / workers - first;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (count == 0 && lane < group_) {
      sums_of(warp_)[lane] = {-INFINITY, 0.0F};
    }
    RunAttention<Codes, D, false>(arguments_, {row_, planned.begin + first, count}, row_ + 1,
                                  memory_ + warp_ * warp_bytes(D, kCodeBits<Codes>, group_), states)
        .run([&](int, const auto& attention) {
          __syncwarp();  // all lanes have read the last page
          attention.write(outs_of(warp_), sums_of(warp_), group_);
        });
  }

  // A warp without tiles has left no more than a sum of zero.
  [[nodiscard]] __device__ Part part_of_warp(int warp, int head, int place) const {
    const float2 sums = sums_of(warp)[head];
    return sums.y == 0.0F ? Part{} : Part{sums.x, sums.y, outs_of(warp)[place]};
  }

  // The block's part of each query head to the block that finishes the head.
  __device__ void hand_out() {
    for (int i = static_cast<int>(threadIdx.x); i < group_ * kQuads; i += kThreads) {
      const int head = i / 4 % group_;
      Part parts[kDecodeWarps];
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) {
        parts[w] = part_of_warp(w, head, i);
      }
      const Part own = reduce(parts);
      Received<D>* to = cluster_.map_shared_rank(&received_, head % blocks_);
      const int place = head / blocks_ * blocks_ + rank_;
      const int quad = i % 4 * (kQuads / 4) + i / (4 * group_);
      to->outs[place][quad] = own.out;
      if (quad == 0) {
        to->sums[place] = {own.reference, own.sum};
      }
    }
  }

  // Adds up what the blocks have of query heads `rank`, `rank` + blocks, ...: a thread for each
  // four channels.
  __device__ void finish() const {
    const int index = static_cast<int>(threadIdx.x) / kQuads;  // of the block's heads
    const int quad = static_cast<int>(threadIdx.x) % kQuads;
    const int head = rank_ + index * blocks_;
    const std::size_t first = static_cast<std::size_t>(row_) * group_;
    float4 out{};
    if (head < group_) {
      out = output_of(sum_up(index, head, quad));
      if constexpr (!FormatOf<kType>::kRotated) {
        write_output(arguments_, (first + head) * kQuads + quad, out);
      }
    }
    if constexpr (FormatOf<kType>::kRotated) {
      __shared__ __align__(16) float rotated[kThreads * 4];
      if (head < group_) {
        reinterpret_cast<float4*>(rotated)[threadIdx.x] = out;
      }
      __syncthreads();
      for (int i = warp_; rank_ + i * blocks_ < group_; i += kDecodeWarps) {
        write_rotated_back<D>(arguments_, rotated + i * D, first + rank_ + i * blocks_);
      }
    }
  }

  __device__ Part sum_up(int index, int head, int quad) const {
    Part parts[kMostClusterBlocks + 1];
    if (arguments_.entries.open_scores != nullptr && arguments_.plan.rows[row_].state_row >= 0) {
      parts[kMostClusterBlocks] = open_part(arguments_, row_, head, kQuads, quad);
    }
#pragma unroll
    for (int i = 0; i < kMostClusterBlocks; ++i) {
      if (i < blocks_) {
        const int place = index * blocks_ + i;
        const float2 sums = received_.sums[place];
        parts[i] = {sums.x, sums.y, received_.outs[place][quad]};
      }
    }
    return reduce(parts);
  }

  const DecodeArguments& arguments_;
  cooperative_groups::cluster_group cluster_;
  int rank_;
  int blocks_;
  int row_;
  int group_;
  int warp_;
  std::byte* memory_;
  Received<D>& received_;
};

#endif

template <EntryFormat kType, int D>
__global__ void __launch_bounds__(kThreads)
    cluster_kernel(const __grid_constant__ DecodeArguments arguments) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  constexpr int kStages = stages(D, kCodeBits<CodesOf<kType>>);
  __shared__ StageState<tile_pages(D)> states[kDecodeWarps][kStages];
  ClusterAttention<kType, D>(arguments, memory)
      .run(states[static_cast<int>(threadIdx.x) / kWarpSize]);
#endif
}

using Kernel = void (*)(DecodeArguments);

Kernel kernel_for(EntryFormat format, int head_dim) {
  return with_shape(format, head_dim,
                    [&]<EntryFormat kType, int D>() -> Kernel { return cluster_kernel<kType, D>; });
}

int shared_bytes(EntryFormat format, int head_dim, int group) {
  return with_shape(format, head_dim, [group]<EntryFormat kType, int D>() {
    constexpr int kBits = kCodeBits<CodesOf<kType>>;
    static_assert(kMostGroup * (D + 2) * int{sizeof(float)} <=
                  stages(D, kBits) * tile_pages(D) * decode_page_bytes(D, kBits));
    return kDecodeWarps * warp_bytes(D, kBits, group) + int{sizeof(Received<D>)};
  });
}

}  // namespace

int resident_clusters(EntryFormat format, int head_dim, int group, int blocks) {
  if (!winnow::cuda::has_programmatic_launch()) {
    return 0;
  }
  const Kernel kernel = kernel_for(format, head_dim);
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shared_bytes(format, head_dim, kMostGroup)),
                      "shared memory of decode attention");
  return winnow::cuda::resident_clusters(
      kernel, blocks, kThreads, static_cast<std::size_t>(shared_bytes(format, head_dim, group)));
}

void launch_clusters(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                     cudaStream_t stream) {
  const DecodePlan::View& plan = arguments.plan;
  winnow::cuda::launch_clusters(
      kernel_for(format, head_dim), plan.batch_rows * plan.cluster_blocks, plan.cluster_blocks,
      kThreads, static_cast<std::size_t>(shared_bytes(format, head_dim, arguments.group)), stream,
      arguments.entries.settled, arguments);
}

}  // namespace winnow::ops::cuda
