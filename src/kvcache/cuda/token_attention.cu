// One token per sequence, taken and attended to in one kernel: a block per row takes its token
// (newcomer.cuh), the others attend to what is in the cache already (decode_run.cuh), for which
// they make their queries themselves. So nobody waits for the cache to change.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/newcomer.cuh"
#include "kvcache/cuda/token_attention_kernels.h"
#include "ops/cuda/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

// Sequences whose tokens are taken by a launch of their own.
constexpr int kMostAlone = 2;

// Queries that a warp makes of a token's products.
template <class Format, int D>
struct ProjectedQueries {
  const Projection& projection;
  const float* qkv;

  __device__ const float* of(int row) const {
    const int group = projection.group;
    const int token = row / projection.kv_heads;
    const int head = row % projection.kv_heads;
    const std::size_t width = projection.kv_heads * (group + 2);
    return qkv + (token * width + head * group) * D;
  }

  __device__ HeadProjection<D> prepare(int row) const {
    return {projection, projection.query_norm, row / projection.kv_heads};
  }

  __device__ void finish(const HeadProjection<D>& to_query, int row, float* query) const {
    const int group = projection.group;
    const int first = row % projection.kv_heads * group;
#pragma unroll 4
    for (int i = 0; i < group; ++i) {
      ops::cuda::HeadVector<D> vector;
      to_query.take(query + i * D, first + i, borrows_query(projection.decision, i), vector);
      if constexpr (Format::kRotated) {
        vector.rotate();
      }
      vector.store(query + i * D);
    }
    __syncwarp();
  }
};

template <class Format, class Codes, int D>
__global__ void __launch_bounds__(ops::cuda::kDecodeThreads)
    token_kernel(const __grid_constant__ TokenArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  const int rows = arguments.attention.plan.batch_rows;
  const int block = static_cast<int>(blockIdx.x) + arguments.first_block;
  if (block < rows) {
    Newcomer<Format, D>(arguments, block, memory).run();
  } else {
    ops::cuda::attend_runs<Codes, D>(
        arguments.attention, ProjectedQueries<Format, D>{arguments.projection, arguments.step.qkv},
        block - rows, memory);
  }
}

using Kernel = void (*)(TokenArguments);

Kernel kernel_for(ops::EntryFormat format, int head_dim) {
  return ops::cuda::with_shape(format, head_dim, [&]<ops::EntryFormat kType, int D>() -> Kernel {
    using Format = ops::cuda::FormatOf<kType>;
    using Codes = ops::cuda::CodesOf<kType>;
    constexpr int kLeast = ops::cuda::decode_warp_bytes(D, ops::cuda::kCodeBits<Codes>, 1);
    static_assert(sizeof(NewcomerMemory<Format, D>) <= ops::cuda::kDecodeWarps * kLeast);
    return token_kernel<Format, Codes, D>;
  });
}

}  // namespace

int resident_token_workers(ops::EntryFormat format, int head_dim, int group) {
  return ops::cuda::resident_workers(reinterpret_cast<const void*>(kernel_for(format, head_dim)),
                                     format, head_dim, group);
}

void launch_token_attention(ops::EntryFormat format, int head_dim, TokenArguments arguments,
                            cudaStream_t stream) {
  const auto& plan = arguments.attention.plan;
  const int rows = plan.batch_rows;
  const int runs = plan.workers / ops::cuda::kDecodeWarps;
  const auto launch = [&](int first, int blocks) {
    arguments.first_block = first;
    winnow::cuda::launch(
        kernel_for(format, head_dim), blocks, ops::cuda::kDecodeThreads,
        ops::cuda::decode_shared_bytes(format, head_dim, arguments.attention.group), stream, true,
        arguments);
  };
  // Few tokens are taken in the time in which runs find their pages; that of many would be lost.
  if (arguments.step.batch <= kMostAlone) {
    launch(0, rows);
    launch(rows, runs);
  } else {
    launch(0, rows + runs);
  }
}

}  // namespace winnow::kvcache::cuda
