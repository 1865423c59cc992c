// Training attention, backward, with Hopper's own instructions (sm_90a). A block of threads takes
// 128 keys of a KV head and goes over the queries that see any of them, from the last to the first.
//   Two warpgroups hold 64 keys each. Scores are products keys x queries, so that weights and
//     gradients of scores are, as they lie in registers, operands of the sums over queries (the
//     gradients of values and of keys), and bias and its gradient are per row.
//   The gradient of queries is a sum over keys, of both warpgroups: gradients of scores go through
//     shared memory, and the product of this block of keys is added to an array in float.
//   The last warpgroup feeds the others (a thread), and tells other blocks how far this one is.
// Blocks of keys add to a query's gradient in order, so that the result repeats itself to the bit:
// `turns` says for each block of queries whose turn it is. Nobody waits long: all blocks of a
// document begin at its end, one step behind the one before. Nobody waits forever: blocks are taken
// in order.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training_backward_sm90.cuh"

#include <numbers>

namespace winnow::ops::cuda {
namespace {

enum NamedBarrier { kScoresBarrier = 1, kAddedBarrier };

__device__ int load_relaxed(const int* from) {
  int x;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
__device__ int load_acquire(const int* from) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
__device__ void store_release(int* to, int x) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

__device__ void add_to(float4* to, const float* x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]),
               "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
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
        first_key_(item.first_key + 64 * warpgroup_),
        scale_(arguments.backward.attention.scale * std::numbers::log2e_v<float>) {
    const TrainingBackward& backward = arguments.backward;
    const Matrix<const float>& bias = backward.attention.bias;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int key = key_of(row);
      const bool inside = key < backward.tokens;
      bias_[row] = inside && bias.rows != 0
                       ? bias.data[std::size_t(key) * bias.stride + item.kv_head] *
                             std::numbers::log2e_v<float>
                       : 0.0F;
    }
    all_see_until_ = first_key_ < backward.tokens ? arguments.document_end[first_key_] : 0;
  }

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
  __device__ BackwardControl<S>& control() const {
    return shared_.control();
  }
  // The key of a lane's row.
  __device__ int key_of(int row) const {
    return first_key_ + thread_ / 32 * 16 + thread_ % 32 / 4 + 8 * row;
  }

  // scores = keys x queries of the stage whose turn it is.
  __device__ __forceinline__ void begin_scores(float (&scores)[S::kQueries / 2]) const {
    begin_product<typename S::Pair, S::D, false>(scores,
                                                 shared_.keys() + warpgroup_ * 64 * kSlabBytes,
                                                 S::kKeys, shared_.query(turn_.stage));
  }

  // A block of queries of a head. Their scores are under way; when this returns, the next ones are.
  __device__ __forceinline__ void step(int block, int head, bool last,
                                       float (&scores)[S::kQueries / 2], float (&dkeys)[S::D / 2],
                                       float (&dvalues)[S::D / 2]) {
    const int query = block * S::kQueries;
    const Turn<S::kStages> now = turn_;
    int* turn_of_block = arguments_.turns + head * arguments_.query_blocks + block;
    const int whose_turn = load_relaxed(turn_of_block);
    wait_for_products<0>(scores);
    float dscores[S::kQueries / 2];
    control().dout_full[now.stage].wait(now.parity);
    begin_product<typename S::Pair, S::D, false>(dscores,
                                                 shared_.values() + warpgroup_ * 64 * kSlabBytes,
                                                 S::kKeys, shared_.dout(now.stage));
    const QuerySums* sums = control().sums[now.stage];
    const bool plain = is_plain(query);
    if (plain) {
      weigh(query, sums, scores);
    } else {
      weigh_masked(query, sums, scores);
    }
    std::uint32_t operands[S::kQueries / 4];
    to_operands<typename S::Pair>(scores, operands);
    begin_weighted_sum<typename S::Pair>(dvalues, operands, shared_.dout(now.stage));
    wait_for_products<1>(dscores);
    if (plain) {
      differentiate(query, sums, operands, dscores);
    } else {
      differentiate_masked(query, sums, operands, dscores);
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
    turn_.next();
    if (!last) {
      control().query_full[turn_.stage].wait(turn_.parity);
    }
    wait_for_products<1>(dqueries);
    release(control().dout_empty[now.stage]);
    add_dqueries(dqueries, query, head * arguments_.query_blocks + block, turn_of_block,
                 whose_turn);
    begin_scores(scores);  // of anything when there is no next one: a branch costs more
    wait_for_products<1>();
    release(control().query_empty[now.stage]);
  }

  // Whether all queries of a block see all of the warpgroup's keys, all or none of them within the
  // window.
  __device__ bool is_plain(int query) const {
    const int window = arguments_.backward.attention.window;
    const bool all_see = query >= first_key_ + 63 && query + S::kQueries <= all_see_until_;
    const bool far = query - (first_key_ + 63) > window;
    const bool near = query + S::kQueries - 1 - first_key_ <= window;
    return all_see && (far || near);
  }
  __device__ bool is_far(int query) const {
    return query - (first_key_ + 63) > arguments_.backward.attention.window;
  }
  // Bits of the columns (queries) that see a row's key, and of those beyond the window.
  __device__ std::uint32_t seen(int row, int query) const {
    const int key = key_of(row);
    const int end = key < arguments_.backward.tokens ? arguments_.document_end[key] : 0;
    return columns_below<S::kQueries>(end - query) & ~columns_below<S::kQueries>(key - query);
  }
  __device__ std::uint32_t beyond(int row, int query) const {
    const int reach = query - key_of(row);  // of the first column; no sum may overflow
    const int window = arguments_.backward.attention.window;
    return ~columns_below<S::kQueries>(reach > window ? 0 : min(window - reach, S::kQueries) + 1);
  }

  // Scores become weights.
  __device__ __forceinline__ void weigh(int query, const QuerySums* sums,
                                        float (&scores)[S::kQueries / 2]) const {
    const float bias[2] = {is_far(query) ? bias_[0] : 0.0F, is_far(query) ? bias_[1] : 0.0F};
    for_columns([&](int i, int column) {
      const float4 pair = *reinterpret_cast<const float4*>(sums + column);
      scores[i] = exp2_of(fmaf(scores[i], scale_, bias[0] - pair.x));
      scores[i + 1] = exp2_of(fmaf(scores[i + 1], scale_, bias[0] - pair.z));
      scores[i + 2] = exp2_of(fmaf(scores[i + 2], scale_, bias[1] - pair.x));
      scores[i + 3] = exp2_of(fmaf(scores[i + 3], scale_, bias[1] - pair.z));
    });
  }
  __device__ __forceinline__ void weigh_masked(int query, const QuerySums* sums,
                                               float (&scores)[S::kQueries / 2]) const {
    const std::uint32_t visible[2] = {seen(0, query), seen(1, query)};
    const std::uint32_t far[2] = {beyond(0, query), beyond(1, query)};
    for_columns([&](int i, int column) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int row = x / 2;
        const int bit = i / 2 + x % 2;
        const float bias = (far[row] >> bit & 1U) != 0 ? bias_[row] : 0.0F;
        const float weight =
            exp2_of(fmaf(scores[i + x], scale_, bias - sums[column + x % 2].normalizer));
        scores[i + x] = (visible[row] >> bit & 1U) != 0 ? weight : 0.0F;
      }
    });
  }

  // Gradients of weights become those of scores.
  __device__ __forceinline__ void differentiate(int query, const QuerySums* sums,
                                                const std::uint32_t (&weights)[S::kQueries / 4],
                                                float (&dscores)[S::kQueries / 2]) {
    float sum[4] = {};
    for_columns([&](int i, int column) {
      const float4 pair = *reinterpret_cast<const float4*>(sums + column);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dscores[i + x] =
            weight_of(weights, i + x) * (dscores[i + x] - (x % 2 == 0 ? pair.y : pair.w));
        sum[x] += dscores[i + x];
      }
    });
    const bool far = is_far(query);
    dbias_[0] += far ? sum[0] + sum[1] : 0.0F;
    dbias_[1] += far ? sum[2] + sum[3] : 0.0F;
  }
  __device__ __forceinline__ void differentiate_masked(
      int query, const QuerySums* sums, const std::uint32_t (&weights)[S::kQueries / 4],
      float (&dscores)[S::kQueries / 2]) {
    const std::uint32_t far[2] = {beyond(0, query), beyond(1, query)};
    for_columns([&](int i, int column) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dscores[i + x] = weight_of(weights, i + x) * (dscores[i + x] - sums[column + x % 2].dot);
        dbias_[x / 2] += (far[x / 2] >> (i / 2 + x % 2) & 1U) != 0 ? dscores[i + x] : 0.0F;
      }
    });
  }

  // Rounded to bf16, as it weighs values: registers are what is short.
  static __device__ __forceinline__ float weight_of(const std::uint32_t (&weights)[S::kQueries / 4],
                                                    int i) {
    const std::uint32_t pair = weights[i / 2];
    return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
  }

  // f(i, column): elements i to i + 3 are of columns `column` and the next, of both rows.
  template <class F>
  static __device__ __forceinline__ void for_columns(F&& f) {
#pragma unroll
    for (int i = 0; i < S::kQueries / 2; i += 4) {
      f(i, 2 * i + static_cast<int>(threadIdx.x) % 4 * 2);
    }
  }

  // To rows of keys in shared memory, queries side by side.
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

  // Adds to the array of gradients, as the lanes hold them, when it is this block of keys' turn.
  __device__ __forceinline__ void add_dqueries(const float (&dqueries)[32], int query, int place,
                                               const int* turn_of_block, int whose_turn) const {
    while (whose_turn != item_.first_key) {
      whose_turn = load_acquire(turn_of_block);
    }
    float4* to = arguments_.dqueries +
                 ((std::size_t(place) * S::kConsumers + warpgroup_) * 8) * kWarpgroup + thread_;
    if (query >= item_.own_from) {  // the first to add
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        to[i * kWarpgroup] = {dqueries[4 * i], dqueries[4 * i + 1], dqueries[4 * i + 2],
                              dqueries[4 * i + 3]};
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        add_to(to + i * kWarpgroup, &dqueries[4 * i]);
      }
    }
    arrive_named(kAddedBarrier, S::kConsumers * kWarpgroup + 32);
  }

  __device__ __forceinline__ void store(const float (&dkeys)[S::D / 2],
                                        const float (&dvalues)[S::D / 2]) {
    const TrainingBackward& backward = arguments_.backward;
    const TrainingAttentionGradients& to = backward.gradients;
    const bool inside[2] = {key_of(0) < backward.tokens, key_of(1) < backward.tokens};
    const auto rows_of = [&](const Matrix<bf16>& matrix, bf16*(&rows)[2]) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        rows[row] = matrix.data + std::size_t(key_of(row)) * matrix.stride + item_.kv_head * S::D;
      }
    };
    bf16* rows[2];
    rows_of(to.values, rows);
    store_rows<S::D>(dvalues, {1.0F, 1.0F}, rows, inside);
    rows_of(to.keys, rows);
    const float scale = backward.attention.scale;
    store_rows<S::D>(dkeys, {scale, scale}, rows, inside);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float sum = dbias_[row] + __shfl_xor_sync(0xFFFFFFFFU, dbias_[row], 1);
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
      if (inside[row] && to.bias.rows != 0 && thread_ % 4 == 0) {
        to.bias.data[std::size_t(key_of(row)) * to.bias.stride + item_.kv_head] = sum;
      }
    }
  }

  const TrainingBackwardSm90& arguments_;
  const BackwardItem& item_;
  const BackwardShared<S>& shared_;
  int warpgroup_;
  int thread_;
  int first_key_;  // of the warpgroup
  float scale_;    // of scores, in powers of two
  float bias_[2];  // of the lane's rows, in powers of two
  float dbias_[2] = {0.0F, 0.0F};
  int all_see_until_;  // queries from here on do not see the warpgroup's first key
  int slot_ = 0;       // of gradients of scores
  Turn<S::kStages> turn_;
};

/// A warp: passes the turn to the next block of keys once all of this one has been added.
template <class S>
__device__ void pass_turns(const TrainingBackwardSm90& arguments, const BackwardItem& item) {
  const int group = arguments.backward.attention.group;
  for (int block = item.end_block - 1; block >= item.first_block; --block) {
    for (int g = 0; g < group; ++g) {
      sync_named(kAddedBarrier, S::kConsumers * kWarpgroup + 32);
      if (threadIdx.x % 32 == 0) {
        __threadfence();
        const int head = item.kv_head * group + g;
        store_release(arguments.turns + head * arguments.query_blocks + block,
                      item.first_key + S::kKeys);
      }
      __syncwarp();
    }
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
    } else if (thread / 32 == 1) {
      pass_turns<S>(arguments, item);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    Consumer<S>(arguments, item, shared).run();
  }
#endif
}

/// Where each query's gradient was summed up, to where the caller wants it.
template <class S>
__global__ void __launch_bounds__(kWarpgroup)
    store_dqueries_kernel(const __grid_constant__ TrainingBackwardSm90 arguments) {
  const TrainingBackward& backward = arguments.backward;
  const int block = static_cast<int>(blockIdx.x) / S::kConsumers;
  const int warpgroup = static_cast<int>(blockIdx.x) % S::kConsumers;
  const int head = blockIdx.y;
  const int thread = threadIdx.x;
  const std::size_t place = std::size_t(head) * arguments.query_blocks + block;
  const float4* from =
      arguments.dqueries + (place * S::kConsumers + warpgroup) * 8 * kWarpgroup + thread;
  float x[32];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    reinterpret_cast<float4&>(x[4 * i]) = from[i * kWarpgroup];
  }
  const Matrix<bf16>& to = backward.gradients.queries;
  const int first = block * S::kQueries + (S::kQueries == 64 ? 0 : warpgroup * 64);
  const int channel = head * S::D + (S::kQueries == 64 ? warpgroup * 64 : 0);
  bf16* rows[2];
  bool inside[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int query = first + thread / 32 * 16 + thread % 32 / 4 + 8 * row;
    inside[row] = query < backward.tokens;
    rows[row] = to.data + std::size_t(query) * to.stride + channel;
  }
  const float scale = backward.attention.scale;
  store_rows<64>(x, {scale, scale}, rows, inside);
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
  const dim3 grid(arguments.query_blocks * S::kConsumers,
                  backward.kv_heads * backward.attention.group);
  winnow::cuda::launch(store_dqueries_kernel<S>, grid, kWarpgroup, 0, stream, false, arguments);
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
