// Prefill attention with Hopper's own instructions (sm_90a). Blocks stay and take tiles as they
// come free, the longest first. In a block
//   warpgroups 0 .. Consumers - 1 hold 64 query rows each: scores and outputs are products of whole
//     warpgroups (wgmma), and while one warpgroup takes exponentials another one multiplies;
//   the last warpgroup feeds them: a thread copies gathered rows, kStages blocks ahead, and three
//     warps bring the queries of the next tile.
// A warpgroup begins a block's scores and the outputs of the block before together, and takes the
// exponentials of the one while the products of the other are under way (FlashAttention-3's scheme:
// Shah et al. 2024).
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_pipeline.cuh"

namespace winnow::ops::cuda {
namespace {

/// A warpgroup's attention of its 64 rows of a tile. The pipeline's state is that of the next
/// block.
template <class S>
class Consumer {
 public:
  __device__ Consumer(const PrefillArguments& arguments, const Shared<S>& shared)
      : arguments_(arguments), shared_(shared), warpgroup_(threadIdx.x / kWarpgroup) {
    if (warpgroup_ == S::kConsumers - 1) {
      pass_issue();
    }
  }

  // Products are issued a block ahead of what is weighed, across tiles as well: the last one of a
  // tile's outputs is followed by the first one of the next tile's scores.
  __device__ void run() {
    if (!await_tile()) {
      return;
    }
    control().key_full[pipe_.stage].wait(pipe_.parity);
    float scores[S::kBlock / 2];
    begin_block_scores(scores);
    for (bool more = true; more;) {
      const TileView view(arguments_, control().tile[query_.stage], warpgroup_);
      std::uint32_t weights[S::kBlock / 4];
      SoftmaxRows softmax;
      wait_for_products<0>(scores);
      float out[S::D / 2];
      clear(out);
      attend(view, scores, weights, out, softmax);
      release(control().query_empty[query_.stage]);
      query_.next();
      more = await_tile();
      const PipelineState<S::kStages> before = pipe_;
      pipe_.next();
      if (more) {
        control().key_full[pipe_.stage].wait(pipe_.parity);
      }
      control().value_full[before.stage].wait(before.parity);
      await_issue();
      begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
      begin_block_scores(scores);  // of anything when there is no next tile: a branch costs more
      pass_issue();
      wait_for_products<1>(out);
      release(control().value_empty[before.stage]);
      float factor[2];
      softmax.reciprocals(factor);
      bf16* const target = arguments_.chunk.out;
      store_rows<S::D>(out, factor, {target + view.rows[0].offset, target + view.rows[1].offset});
    }
    wait_for_products<0>(scores);
  }

 private:
  // Warpgroups issue products one after another, so that they do not all take exponentials at a
  // time.
  __device__ void await_issue() const { sync_named(kFirstIssue + warpgroup_, 2 * kWarpgroup); }
  __device__ void pass_issue() const {
    arrive_named(kFirstIssue + (warpgroup_ + 1) % S::kConsumers, 2 * kWarpgroup);
  }

  // A tile as the rows of a lane see it.
  struct TileView {
    PrefillTile tile;
    QueryRow rows[2];
    VisiblePlaces visible[2];

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

  __device__ Control<S>& control() const { return shared_.control(); }

  // False when there are no more.
  __device__ bool await_tile() const {
    control().query_full[query_.stage].wait(query_.parity);
    return control().tile[query_.stage].head >= 0;
  }

  // The scores of the next block.
  __device__ __forceinline__ void begin_block_scores(float (&scores)[S::kBlock / 2]) const {
    begin_product<typename S::Pair, S::D, false>(
        scores, shared_.query(query_.stage) + warpgroup_ * 64 * kSlabBytes, S::kRows,
        shared_.keys(pipe_.stage));
  }

  // A tile from its first block's scores to its last block's weights.
  __device__ __forceinline__ void attend(const TileView& view, float (&scores)[S::kBlock / 2],
                                         std::uint32_t (&weights)[S::kBlock / 4],
                                         float (&out)[S::D / 2], SoftmaxRows& softmax) {
    float factor[2];
    int place = (view.tile.length - 1) / S::kBlock * S::kBlock;
    release(control().key_empty[pipe_.stage]);
    mask_block(view, place, scores);  // all do not see the newest token
    softmax.weigh(scores, arguments_.scale, factor);
    to_operands<typename S::Pair>(scores, weights);
    for (place -= S::kBlock; place >= 0; place -= S::kBlock) {
      attend_block(view, place, scores, weights, out, softmax);
    }
  }

  // The scores and weights of one block, and the outputs of the one before, whose products are
  // under way while the exponentials are taken. No branch comes between: the compiler waits for
  // products where paths meet.
  __device__ __forceinline__ void attend_block(const TileView& view, int place,
                                               float (&scores)[S::kBlock / 2],
                                               std::uint32_t (&weights)[S::kBlock / 4],
                                               float (&out)[S::D / 2], SoftmaxRows& softmax) {
    const PipelineState<S::kStages> before = pipe_;
    pipe_.next();
    control().value_full[before.stage].wait(before.parity);
    control().key_full[pipe_.stage].wait(pipe_.parity);
    await_issue();
    begin_block_scores(scores);
    begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
    pass_issue();
    wait_for_products<1>(scores);
    release(control().key_empty[pipe_.stage]);
    if (!all_see(arguments_, view.tile, place, S::kBlock)) {
      mask_block(view, place, scores);
    }
    float factor[2];
    const bool grown = softmax.weigh(scores, arguments_.scale, factor);
    // ptxas would wait for the outputs before it takes exponentials: what stops it is a branch that
    // depends on their sums. None is negative, so nobody waits here.
    const bool negative = fminf(softmax.sum[0], softmax.sum[1]) < 0.0F;
    control().key_full[pipe_.stage].wait(negative ? pipe_.parity ^ 1 : pipe_.parity);
    wait_for_products<0>(out);
    release(control().value_empty[before.stage]);
    if (grown) {
      multiply_rows(out, factor);
    }
    to_operands<typename S::Pair>(scores, weights);
  }

  static __device__ __forceinline__ void mask_block(const TileView& view, int place,
                                                    float (&scores)[S::kBlock / 2]) {
    mask(scores, {columns_seen<S::kBlock>(view.visible[0], place),
                  columns_seen<S::kBlock>(view.visible[1], place)});
  }

  const PrefillArguments& arguments_;
  const Shared<S>& shared_;
  int warpgroup_;
  PipelineState<2> query_;          // of the tile
  PipelineState<S::kStages> pipe_;  // of the block whose scores were begun last
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  const Shared<S> shared{memory +
                         (Shared<S>::kAlignment - shared_address(memory)) % Shared<S>::kAlignment};
  if (threadIdx.x == 0) {
    init(shared.control());
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    winnow::cuda::wait_for_predecessor();  // the gathered rows and the tiles' order are there
    winnow::cuda::release_successor();
    if (thread >= kWarpgroup - kLoaders) {
      load_queries<S>(arguments, shared);
    } else if (thread == 0) {
      load_entries<S>(arguments, shared);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    Consumer<S>(arguments, shared).run();
  }
#endif
}

template <class S>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  constexpr int kBytes = Shared<S>::kBytes;
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
