// Training attention, forward, with Hopper's own instructions (sm_90a), as prefill attention does
// it (prefill_attention_sm90.cu): blocks stay and take tiles, warpgroups of 64 queries multiply
// one after another and take the exponentials of a block of keys while the products of the one
// before are under way. Beyond the window scores begin as the keys' bias, which products are then
// added to: it costs the loads alone. Only the blocks at the window's and the documents' edges are
// looked at score by score.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_forward_sm90.cuh"

#include <algorithm>
#include <numbers>

namespace winnow::ops::cuda {
namespace {

enum NamedBarrier { kFirstIssue = 1 };

/// A warpgroup's attention of its 64 queries of a tile.
template <class S>
class Consumer {
 public:
  __device__ Consumer(const TrainingForwardSm90& arguments, const ForwardShared<S>& shared)
      : arguments_(arguments),
        shared_(shared),
        warpgroup_(threadIdx.x / kWarpgroup),
        scale_(arguments.forward.attention.scale * std::numbers::log2e_v<float>) {
    if (warpgroup_ == S::kConsumers - 1) {
      pass_issue();
    }
  }

  // Products are issued a block ahead of what is weighed, across tiles as well.
  __device__ __forceinline__ void run() {
    if (!await_tile()) {
      return;
    }
    Queries queries(arguments_, control().tile[query_.stage], warpgroup_);
    control().key_full[pipe_.stage].wait(pipe_.parity);
    float scores[S::kKeys / 2];
    begin_with_bias(queries, queries.tile.end - 1, scores);
    begin_scores(scores);
    for (bool more = true; more;) {
      std::uint32_t weights[S::kKeys / 4];
      SoftmaxRows softmax;
      wait_for_products<0>(scores);
      float out[S::D / 2];
      clear(out);
      attend(queries, scores, weights, out, softmax);
      release(control().query_empty[query_.stage]);
      query_.next();
      more = await_tile();
      const PipelineState<S::kStages> before = pipe_;
      pipe_.next();
      const Queries done = queries;
      if (more) {
        queries = Queries(arguments_, control().tile[query_.stage], warpgroup_);
        control().key_full[pipe_.stage].wait(pipe_.parity);
      }
      begin_with_bias(queries, queries.tile.end - 1, scores);
      control().value_full[before.stage].wait(before.parity);
      await_issue();
      begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
      begin_scores(scores);  // of anything when there is no next tile: a branch costs more
      pass_issue();
      wait_for_products<1>(out);
      release(control().value_empty[before.stage]);
      store(done, out, softmax);
    }
    wait_for_products<0>(scores);
  }

 private:
  // The warpgroup's part of a tile, and the lane's two rows of it.
  struct Queries {
    ForwardTile tile;
    int first;           // query
    int oldest_of_last;  // the first key that the last query sees
    int row;             // query of the lane's first row, the second is 8 further
    int oldest[2];

    __device__ Queries(const TrainingForwardSm90& arguments, const ForwardTile& of, int warpgroup)
        : tile(of), first(of.first + 64 * warpgroup) {
      const TrainingForward& forward = arguments.forward;
      const auto oldest_of = [&](int query) {
        return forward.attention.first_key[min(query, forward.tokens - 1)];
      };
      const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
      row = first + thread / 32 * 16 + thread % 32 / 4;
      oldest_of_last = oldest_of(first + 63);
      oldest[0] = oldest_of(row);
      oldest[1] = oldest_of(row + 8);
    }
    __device__ bool all_see(int key) const {
      return key + S::kKeys - 1 <= first && key >= oldest_of_last;
    }
  };

  // Warpgroups issue products one after another, so that they do not all take exponentials at a
  // time.
  __device__ void await_issue() const { sync_named(kFirstIssue + warpgroup_, 2 * kWarpgroup); }
  __device__ void pass_issue() const {
    arrive_named(kFirstIssue + (warpgroup_ + 1) % S::kConsumers, 2 * kWarpgroup);
  }

  __device__ ForwardControl<S>& control() const { return shared_.control(); }

  // False when there are no more.
  __device__ bool await_tile() const {
    control().query_full[query_.stage].wait(query_.parity);
    return control().tile[query_.stage].head >= 0;
  }

  // Whether a block of keys is beyond the window of all queries, or within that of all.
  __device__ bool is_far(const Queries& queries, int key) const {
    return arguments_.bias != nullptr &&
           queries.first - (key + S::kKeys - 1) > arguments_.forward.attention.window;
  }
  __device__ bool is_near(const Queries& queries, int key) const {
    return arguments_.bias == nullptr ||
           queries.first + 63 - key <= arguments_.forward.attention.window;
  }

  // What the scores of the next block begin with.
  __device__ __forceinline__ void begin_with_bias(const Queries& queries, int block,
                                                  float (&scores)[S::kKeys / 2]) const {
    if (is_far(queries, block * S::kKeys)) {
      const float* bias = control().bias[pipe_.stage] + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; i += 4) {
        const float2 pair = *reinterpret_cast<const float2*>(bias + 2 * i);
        scores[i] = scores[i + 2] = pair.x;
        scores[i + 1] = scores[i + 3] = pair.y;
      }
    } else {
#pragma unroll
      for (float& score : scores) {
        score = 0.0F;
      }
    }
  }
  __device__ __forceinline__ void begin_scores(float (&scores)[S::kKeys / 2]) const {
    begin_product<typename S::Pair, S::D, true>(
        scores, shared_.query(query_.stage) + warpgroup_ * 64 * kSlabBytes, S::kRows,
        shared_.keys(pipe_.stage));
  }

  // A tile from its first block's scores to its last block's weights.
  __device__ __forceinline__ void attend(const Queries& queries, float (&scores)[S::kKeys / 2],
                                         std::uint32_t (&weights)[S::kKeys / 4],
                                         float (&out)[S::D / 2], SoftmaxRows& softmax) {
    float factor[2];
    int block = queries.tile.end - 1;
    add_edges(queries, block, scores);
    release(control().key_empty[pipe_.stage]);
    softmax.weigh(scores, scale_, factor);
    to_operands<typename S::Pair>(scores, weights);
    for (--block; block >= queries.tile.begin; --block) {
      attend_block(queries, block, scores, weights, out, softmax);
    }
  }

  // The scores and weights of one block, and the outputs of the one before, whose products are
  // under way while the exponentials are taken.
  __device__ __forceinline__ void attend_block(const Queries& queries, int block,
                                               float (&scores)[S::kKeys / 2],
                                               std::uint32_t (&weights)[S::kKeys / 4],
                                               float (&out)[S::D / 2], SoftmaxRows& softmax) {
    const PipelineState<S::kStages> before = pipe_;
    pipe_.next();
    control().key_full[pipe_.stage].wait(pipe_.parity);
    begin_with_bias(queries, block, scores);
    control().value_full[before.stage].wait(before.parity);
    await_issue();
    begin_scores(scores);
    begin_weighted_sum<typename S::Pair>(out, weights, shared_.values(before.stage));
    pass_issue();
    wait_for_products<1>(scores);
    const int key = block * S::kKeys;
    if (!queries.all_see(key) || !(is_near(queries, key) || is_far(queries, key))) {
      add_edges(queries, block, scores);
    }
    release(control().key_empty[pipe_.stage]);
    float factor[2];
    const bool grown = softmax.weigh(scores, scale_, factor);
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

  // What a block at an edge lacks: bias where only some scores have it, and -infinity for keys that
  // are not seen.
  __device__ __forceinline__ void add_edges(const Queries& queries, int block,
                                            float (&scores)[S::kKeys / 2]) const {
    const int key = block * S::kKeys;
    std::uint32_t seen[2];
    std::uint32_t biased[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = queries.row + 8 * r;
      seen[r] = columns_below<S::kKeys>(query + 1 - key) &
                ~columns_below<S::kKeys>(queries.oldest[r] - key);
      biased[r] =
          columns_below<S::kKeys>(max(query - arguments_.forward.attention.window, 0) - key);
    }
    if (!is_near(queries, key) && !is_far(queries, key)) {
      const float* bias = control().bias[pipe_.stage] + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; ++i) {
        const int column = i / 4 * 2 + i % 2;
        scores[i] += (biased[i / 2 % 2] >> column & 1U) != 0 ? bias[i / 4 * 8 + i % 2] : 0.0F;
      }
    }
    mask(scores, seen);
  }

  __device__ __forceinline__ void store(const Queries& queries, const float (&out)[S::D / 2],
                                        const SoftmaxRows& softmax) const {
    const TrainingForward& forward = arguments_.forward;
    float sum[2];
    softmax.sums(sum);
    bf16* rows[2];
    bool inside[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = queries.row + 8 * r;
      inside[r] = query < forward.tokens;
      rows[r] =
          forward.out.data + std::size_t(query) * forward.out.stride + queries.tile.head * S::D;
      if (inside[r] && threadIdx.x % 4 == 0) {
        forward.normalizers
            .data[std::size_t(query) * forward.normalizers.stride + queries.tile.head] =
            (softmax.largest[r] * scale_ + log2f(sum[r])) * std::numbers::ln2_v<float>;
      }
    }
    store_rows<S::D>(out, {1.0F / sum[0], 1.0F / sum[1]}, rows, inside);
  }

  const TrainingForwardSm90& arguments_;
  const ForwardShared<S>& shared_;
  int warpgroup_;
  float scale_;                     // of scores, in powers of two
  PipelineState<2> query_;          // of the tile
  PipelineState<S::kStages> pipe_;  // of the block whose scores were begun last
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_kernel(const __grid_constant__ TrainingForwardSm90 arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  using Shared = ForwardShared<S>;
  const Shared shared{memory + (Shared::kAlignment - shared_address(memory)) % Shared::kAlignment};
  if (threadIdx.x == 0) {
    init(shared.control());
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    if (threadIdx.x == S::kConsumers * kWarpgroup) {
      load_forward<S>(arguments, shared);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    Consumer<S>(arguments, shared).run();
  }
#endif
}

template <class S>
void launch(const TrainingForwardSm90& arguments, cudaStream_t stream) {
  constexpr int kBytes = ForwardShared<S>::kBytes;
  winnow::cuda::check(
      cudaFuncSetAttribute(forward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "shared memory of training attention");
  const TrainingForward& forward = arguments.forward;
  const int tiles =
      (forward.tokens + S::kRows - 1) / S::kRows * forward.kv_heads * forward.attention.group;
  const int blocks = std::min(winnow::cuda::multiprocessor_count(), tiles);
  winnow::cuda::launch(forward_kernel<S>, blocks, S::kThreads, kBytes, stream, false, arguments);
}

}  // namespace

void launch_training_forward_sm90(const TrainingForwardSm90& arguments, cudaStream_t stream) {
  if (arguments.forward.attention.head_dim == 64) {
    launch<ForwardShape<64>>(arguments, stream);
  } else {
    launch<ForwardShape<128>>(arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
