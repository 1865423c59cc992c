// Prefill attention with Hopper-specific instructions (sm_90a): the pipeline of
// hopper_attention.cuh over gathered rows, the longest tiles first. In the last warpgroup one
// thread copies gathered rows, and three warps load the queries of the next tile.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_pipeline.cuh"

namespace winnow::ops::cuda {
namespace {

/// Prefill's part of the pipeline: entries that a query does not see are masked.
template <class S>
class PrefillWork {
 public:
  static constexpr bool kBias = false;

  __device__ PrefillWork(const PrefillArguments& arguments, const Shared<S>& /*shared*/,
                         int warpgroup)
      : arguments_(arguments), warpgroup_(warpgroup) {}

  __device__ float scale() const { return arguments_.scale; }
  __device__ void take(const PrefillTile& /*tile*/) {}
  __device__ void leave() {}
  __device__ __forceinline__ void enter(const PrefillTile& tile) {
    view_ = TileView(arguments_, tile, warpgroup_);
  }
  __device__ int last_block() const { return (view_.tile.length - 1) / S::kBlock; }
  __device__ int first_block() const { return 0; }

  template <class... Ignored>
  __device__ void begin_scores(const Ignored&... /*ignored*/) const {}
  __device__ __forceinline__ void edges(int /*stage*/, int block,
                                        float (&scores)[S::kBlock / 2]) const {
    mask(scores, {columns_seen<S::kBlock>(view_.visible[0], block * S::kBlock),
                  columns_seen<S::kBlock>(view_.visible[1], block * S::kBlock)});
  }
  __device__ __forceinline__ void edges_if_any(int stage, int block,
                                               float (&scores)[S::kBlock / 2]) const {
    if (!all_see(arguments_, view_.tile, block * S::kBlock, S::kBlock)) {
      edges(stage, block, scores);
    }
  }

  __device__ __forceinline__ void store(const float (&out)[S::D / 2],
                                        const SoftmaxRows& softmax) const {
    float factor[2];
    softmax.reciprocals(factor);
    bf16* const target = arguments_.chunk.out;
    store_rows<S::D>(out, factor, {target + view_.rows[0].offset, target + view_.rows[1].offset});
  }

 private:
  // A tile from the perspective of a lane's rows.
  struct TileView {
    PrefillTile tile;
    QueryRow rows[2];
    VisiblePlaces visible[2];

    TileView() = default;
    __device__ TileView(const PrefillArguments& arguments, const PrefillTile& of, int warpgroup)
        : tile(of),
          rows{{arguments, of, first_row(warpgroup), S::D},
               {arguments, of, first_row(warpgroup) + 8, S::D}},
          visible{{arguments, of, rows[0].token}, {arguments, of, rows[1].token}} {}
    static __device__ int first_row(int warpgroup) {
      const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
      return warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4;
    }
  };

  const PrefillArguments& arguments_;
  int warpgroup_;
  TileView view_;
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  const Shared<S> shared{memory +
                         (Shared<S>::kAlignment - shared_address(memory)) % Shared<S>::kAlignment};
  if (threadIdx.x == 0) {
    shared.control().init(kLoaders, 1);
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    winnow::cuda::wait_for_predecessor();  // for the gathered rows and the order of tiles
    winnow::cuda::release_successor();
    if (thread >= kWarpgroup - kLoaders) {
      load_queries<S>(arguments, shared);
    } else if (thread == 0) {
      load_entries<S>(arguments, shared);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    AttentionConsumer<S, PrefillWork<S>, PrefillArguments, Shared<S>, kFirstIssue>(arguments,
                                                                                   shared)
        .run();
  }
#endif
}

template <class S>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  constexpr int kBytes = Shared<S>::kBytes;
  static_assert(kBytes <= 227 * 1024);  // of a block
  winnow::cuda::check(
      cudaFuncSetAttribute(prefill_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "shared memory of prefill attention");
  const int blocks = std::min(winnow::cuda::multiprocessor_count(), arguments.tiles);
  winnow::cuda::launch(prefill_kernel<S>, blocks, S::kThreads, kBytes, stream, true, arguments);
}

}  // namespace

void launch_prefill_sm90(EntryFormat format, int head_dim, const PrefillArguments& arguments,
                         cudaStream_t stream) {
  with_head_dim(head_dim, [&]<int D>() {
    if (format == EntryFormat::bf16) {
      launch<Shape<__nv_bfloat162, D>>(arguments, stream);
    } else {
      launch<Shape<__half2, D>>(arguments, stream);
    }
  });
}

}  // namespace winnow::ops::cuda
