// Training attention, backward, with Hopper-specific instructions (sm_90a). A block of threads
// takes 128 keys of a KV head and iterates over the queries that see any of them, last to first.
//   Two warpgroups hold 64 keys each. Scores are products keys x queries, so that weights and
//     gradients of scores are, in their register layout, operands of the sums over queries (the
//     gradients of values and of keys), and bias and its gradient are per row.
//   The gradient of queries is a sum over keys, of both warpgroups: gradients of scores go through
//     shared memory, and the product of this block of keys is added to an array in float.
//   The last warpgroup loads data (one thread), and adds up gradients of queries (two warps).
// Blocks of keys add to a query's gradient in a fixed order, so that results are reproducible to
// the bit: for each block of queries, `next_keys` is the next block of keys to add. Waits are
// short: all blocks of a document begin at its end, one step after the one before. There is no
// deadlock: blocks are taken in order.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_key_rows.cuh"

namespace winnow::ops::cuda {
namespace {

enum NamedBarrier { kScoresBarrier = 1, kFirstAdder };

/// Warps that alternate in adding up gradients of queries: while one waits for its writes to
/// complete, the next one begins.
constexpr int kAdders = 2;

__device__ int load_acquire(const int* from) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
__device__ void store_release(int* to, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

/// A warpgroup's 64 keys.
template <class S>
class Consumer {
 public:
  __device__ Consumer(const TrainingBackwardSm90& arguments, const BackwardItem& item,
                      const BackwardShared<S>& shared)
      : arguments_(arguments),
        item_(item),
        shared_(shared),
        warpgroup_(threadIdx.x / kWarpgroup),
        thread_(threadIdx.x % kWarpgroup),
        rows_(arguments, item.kv_head, item.first_key + 64 * warpgroup_) {}

  __device__ __forceinline__ void run() {
    float dkeys[S::D / 2];
    float dvalues[S::D / 2];
    clear(dkeys);
    clear(dvalues);
    float scores[S::kQueries / 2];
    control().keys_full.wait(0);
    control().query_full[0].wait(0);
    begin_scores(scores);
    const int group = arguments_.backward.attention.group;
    int block = item_.end_block - 1;
    int g = 0;
    for (int steps = (item_.end_block - item_.first_block) * group; steps > 0; --steps) {
      step(block, item_.kv_head * group + g, steps == 1, scores, dkeys, dvalues);
      if (++g == group) {
        g = 0;
        --block;
      }
    }
    wait_for_products<0>(dkeys);
    pin(dvalues);
    store(dkeys, dvalues);
  }

 private:
  __device__ BackwardControl<S>& control() const { return shared_.control(); }
  // Issues scores = keys x queries of the current stage.
  __device__ __forceinline__ void begin_scores(float (&scores)[S::kQueries / 2]) const {
    begin_product<typename S::Pair, S::D, false>(scores,
                                                 shared_.keys() + warpgroup_ * 64 * kSlabBytes,
                                                 S::kKeys, shared_.query(pipe_.stage));
  }

  // Processes a block of queries of a head. On entry its scores are in flight, on exit the next.
  __device__ __forceinline__ void step(int block, int head, bool last,
                                       float (&scores)[S::kQueries / 2], float (&dkeys)[S::D / 2],
                                       float (&dvalues)[S::D / 2]) {
    const int query = block * S::kQueries;
    const PipelineState<S::kStages> now = pipe_;
    wait_for_products<0>(scores);
    float dscores[S::kQueries / 2];
    control().dout_full[now.stage].wait(now.parity);
    begin_product<typename S::Pair, S::D, false>(dscores,
                                                 shared_.values() + warpgroup_ * 64 * kSlabBytes,
                                                 S::kKeys, shared_.dout(now.stage));
    const QuerySums* sums = control().sums[now.stage];
    const bool plain = rows_.is_plain(query);
    if (plain) {
      rows_.weigh(query, sums, scores);
    } else {
      rows_.weigh_masked(query, sums, scores);
    }
    std::uint32_t operands[S::kQueries / 4];
    to_operands<typename S::Pair>(scores, operands);
    begin_weighted_sum<typename S::Pair>(dvalues, operands, shared_.dout(now.stage));
    wait_for_products<1>(dscores);
    if (plain) {
      rows_.differentiate(query, sums, operands, dscores);
    } else {
      rows_.differentiate_masked(query, sums, operands, dscores);
    }
    std::uint32_t doperands[S::kQueries / 4];
    to_operands<typename S::Pair>(dscores, doperands);
    std::byte* slot = shared_.dscores(slot_);
    store_dscores(doperands, slot);
    slot_ ^= 1;
    fence_async_proxy();
    sync_named(kScoresBarrier, S::kConsumers * kWarpgroup);
    float dqueries[32];
    begin_dqueries(dqueries, slot);
    begin_weighted_sum<typename S::Pair>(dkeys, doperands, shared_.query(now.stage));
    pipe_.next();
    if (!last) {
      control().query_full[pipe_.stage].wait(pipe_.parity);
    }
    wait_for_products<1>(dqueries);
    release(control().dout_empty[now.stage]);
    hand_over(dqueries);
    begin_scores(scores);  // on stale data if there is no next one: a branch costs more
    wait_for_products<1>();
    release(control().query_empty[now.stage]);
  }

  // Writes to rows of keys in shared memory, with queries as columns.
  __device__ __forceinline__ void store_dscores(const std::uint32_t (&x)[S::kQueries / 4],
                                                std::byte* to) const {
    const int lane = thread_ % 32;
    const int row = warpgroup_ * 64 + thread_ / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int chunk = 0; chunk < S::kQueries / 8; chunk += 2) {
      const int mine = chunk + lane / 16;
      const auto address = shared_address(to + mine / 8 * (S::kKeys * kSlabBytes) +
                                          row * kSlabBytes + (mine % 8 ^ row % 8) * 16);
      asm volatile(
          "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
          "r"(x[2 * chunk]), "r"(x[2 * chunk + 1]), "r"(x[2 * chunk + 2]), "r"(x[2 * chunk + 3])
          : "memory");
    }
  }

  // 64 queries by 64 channels, summed over all keys of the block. With 64 queries at a time each
  // warpgroup takes half of the channels, with 128 half of the queries.
  __device__ __forceinline__ void begin_dqueries(float (&dqueries)[32],
                                                 const std::byte* dscores) const {
    constexpr int kSlab = S::kKeys * kSlabBytes;
    const std::byte* left = dscores + (S::kQueries == 64 ? 0 : warpgroup_ * kSlab);
    const std::byte* right = shared_.keys() + (S::kQueries == 64 ? warpgroup_ * kSlab : 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      const auto a = matrix_descriptor(left + step * 16 * kSlabBytes, kSlab);
      const auto b = matrix_descriptor(right + step * 16 * kSlabBytes, kSlab);
      if (step == 0) {
        multiply_shared_along<false>(dqueries, a, b, typename S::Pair{});
      } else {
        multiply_shared_along<true>(dqueries, a, b, typename S::Pair{});
      }
    }
    commit_products();
  }

  // Passes them to the warp that adds them up. Its number is also the parity of its buffer's uses.
  __device__ __forceinline__ void hand_over(const float (&dqueries)[32]) {
    control().dqueries_empty.wait(adder_ ^ 1);
    float4* to =
        reinterpret_cast<float4*>(shared_.dqueries()) + warpgroup_ * 8 * kWarpgroup + thread_;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i * kWarpgroup] = {dqueries[4 * i], dqueries[4 * i + 1], dqueries[4 * i + 2],
                            dqueries[4 * i + 3]};
    }
    fence_async_proxy();
    arrive_named(kFirstAdder + adder_, S::kConsumers * kWarpgroup + 32);
    adder_ ^= 1;
  }

  __device__ __forceinline__ void store(const float (&dkeys)[S::D / 2],
                                        const float (&dvalues)[S::D / 2]) {
    const TrainingBackward& backward = arguments_.backward;
    const TrainingAttentionGradients& to = backward.gradients;
    const bool inside[2] = {rows_.inside(0), rows_.inside(1)};
    const auto rows_of = [&](const Matrix<bf16>& matrix, bf16*(&rows)[2]) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        rows[row] =
            matrix.data + std::size_t(rows_.key_of(row)) * matrix.stride + item_.kv_head * S::D;
      }
    };
    bf16* rows[2];
    rows_of(to.values, rows);
    store_rows<S::D>(dvalues, {1.0F, 1.0F}, rows, inside);
    rows_of(to.keys, rows);
    const float scale = backward.attention.scale;
    store_rows<S::D>(dkeys, {scale, scale}, rows, inside);
    rows_.store_dbias(0, item_.kv_head);
    rows_.store_dbias(1, item_.kv_head);
  }

  const TrainingBackwardSm90& arguments_;
  const BackwardItem& item_;
  const BackwardShared<S>& shared_;
  int warpgroup_;
  int thread_;
  KeyRows<S> rows_;
  int slot_ = 0;  // of gradients of scores
  int adder_ = 0;
  PipelineState<S::kStages> pipe_;
};

/// A warp: adds every other block's gradients of queries to those of other blocks of keys, in the
/// fixed order.
template <class S>
__device__ void add_dqueries(const TrainingBackwardSm90& arguments, const BackwardItem& item,
                             const BackwardShared<S>& shared, int adder) {
  const int group = arguments.backward.attention.group;
  const int steps = (item.end_block - item.first_block) * group;
  for (int step = adder; step < steps; step += kAdders) {
    const int block = item.end_block - 1 - step / group;
    const int head = item.kv_head * group + step % group;
    const std::size_t place = std::size_t(head) * arguments.query_blocks + block;
    const bool first = block * S::kQueries >= item.own_from;
    while (!first && load_acquire(arguments.next_keys + place) != item.first_key) {
    }
    sync_named(kFirstAdder + adder, S::kConsumers * kWarpgroup + 32);
    if (threadIdx.x % 32 == 0) {
      fence_async_proxy_everywhere();  // orders the read of next_keys before the additions
      float* to = arguments.dqueries + place * (S::kQueries * S::D);
      if (first) {
        copy_bulk(to, shared.dqueries(), S::kDqueryBytes);
      } else {
        add_bulk(to, shared.dqueries(), S::kDqueryBytes);
      }
      commit_copies();
      wait_until_read();
      shared.control().dqueries_empty.arrive();
      wait_until_written();
      __threadfence();
      store_release(arguments.next_keys + place, item.first_key + S::kKeys);
    }
    __syncwarp();
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_kernel(const __grid_constant__ TrainingBackwardSm90 arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  using Shared = BackwardShared<S>;
  const Shared shared{memory + (Shared::kAlignment - shared_address(memory)) % Shared::kAlignment};
  if (threadIdx.x == 0) {
    init(shared.control());
    shared.control().ticket = atomicAdd(arguments.next_item, 1);
  }
  __syncthreads();
  const auto item = BackwardItem::of(arguments, shared.control().ticket, S{});
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      load_backward<S>(arguments, item, shared);
    } else if (thread / 32 >= 1 && thread / 32 <= kAdders) {
      add_dqueries<S>(arguments, item, shared, thread / 32 - 1);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    Consumer<S>(arguments, item, shared).run();
  }
#endif
}

template <class S>
void launch(const TrainingBackwardSm90& arguments, cudaStream_t stream) {
  constexpr int kBytes = BackwardShared<S>::kBytes;
  winnow::cuda::check(
      cudaFuncSetAttribute(backward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "shared memory of training attention");
  const TrainingBackward& backward = arguments.backward;
  const int items = backward.padded_tokens / S::kKeys * backward.kv_heads;
  winnow::cuda::launch(backward_kernel<S>, items, S::kThreads, kBytes, stream, false, arguments);
}

}  // namespace

void launch_training_backward_sm90(const TrainingBackwardSm90& arguments, cudaStream_t stream) {
  if (arguments.backward.attention.head_dim == 64) {
    launch<BackwardShape<64>>(arguments, stream);
  } else {
    launch<BackwardShape<128>>(arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
