// Training attention, forward, with Hopper-specific instructions (sm_90a): the pipeline of
// hopper_attention.cuh. Beyond the window, scores start from the keys' bias, and products are
// added to it, which costs only the loads. Only blocks at the edges of the window and of documents
// are masked score by score.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_forward_sm90.cuh"

#include <algorithm>
#include <numbers>

namespace winnow::ops::cuda {
namespace {

enum NamedBarrier { kFirstIssue = 1 };

/// Training's part of the pipeline.
template <class S>
class ForwardWork {
 public:
  static constexpr bool kBias = true;

  __device__ ForwardWork(const TrainingForwardSm90& arguments, const ForwardShared<S>& shared,
                         int warpgroup)
      : arguments_(arguments),
        shared_(shared),
        warpgroup_(warpgroup),
        scale_(arguments.forward.attention.scale * std::numbers::log2e_v<float>) {}

  __device__ float scale() const { return scale_; }
  __device__ __forceinline__ void take(const ForwardTile& tile) {
    queries_ = Queries(arguments_, tile, warpgroup_);
  }
  __device__ void enter(const ForwardTile& /*tile*/) {}
  __device__ void leave() { done_ = queries_; }
  __device__ int last_block() const { return queries_.tile.end - 1; }
  __device__ int first_block() const { return queries_.tile.begin; }

  __device__ __forceinline__ void begin_scores(int stage, float (&scores)[S::kBlock / 2]) const {
    begin_scores(stage, last_block(), scores);
  }
  /// The initial values of a block's scores.
  __device__ __forceinline__ void begin_scores(int stage, int block,
                                               float (&scores)[S::kBlock / 2]) const {
    if (is_far(queries_, block * S::kBlock)) {
      const float* bias = control().bias[stage] + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < S::kBlock / 2; i += 4) {
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

  /// Completes a block at an edge: adds bias where only some scores have it, and sets the scores of
  /// unseen keys to -infinity.
  __device__ __forceinline__ void edges(int stage, int block,
                                        float (&scores)[S::kBlock / 2]) const {
    const int key = block * S::kBlock;
    std::uint32_t seen[2];
    std::uint32_t biased[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = queries_.row + 8 * r;
      seen[r] = columns_below<S::kBlock>(query + 1 - key) &
                ~columns_below<S::kBlock>(queries_.oldest[r] - key);
      biased[r] =
          columns_below<S::kBlock>(max(query - arguments_.forward.attention.window, 0) - key);
    }
    if (!is_near(queries_, key) && !is_far(queries_, key)) {
      const float* bias = control().bias[stage] + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < S::kBlock / 2; ++i) {
        const int column = i / 4 * 2 + i % 2;
        scores[i] += (biased[i / 2 % 2] >> column & 1U) != 0 ? bias[i / 4 * 8 + i % 2] : 0.0F;
      }
    }
    mask(scores, seen);
  }
  __device__ __forceinline__ void edges_if_any(int stage, int block,
                                               float (&scores)[S::kBlock / 2]) const {
    const int key = block * S::kBlock;
    if (!queries_.all_see(key) || !(is_near(queries_, key) || is_far(queries_, key))) {
      edges(stage, block, scores);
    }
  }

  __device__ __forceinline__ void store(const float (&out)[S::D / 2],
                                        const SoftmaxRows& softmax) const {
    const TrainingForward& forward = arguments_.forward;
    float sum[2];
    softmax.sums(sum);
    bf16* rows[2];
    bool inside[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = done_.row + 8 * r;
      inside[r] = query < forward.tokens;
      rows[r] = forward.out.data + std::size_t(query) * forward.out.stride + done_.tile.head * S::D;
      if (inside[r] && threadIdx.x % 4 == 0) {
        forward.normalizers
            .data[std::size_t(query) * forward.normalizers.stride + done_.tile.head] =
            (softmax.largest[r] * scale_ + log2f(sum[r])) * std::numbers::ln2_v<float>;
      }
    }
    store_rows<S::D>(out, {1.0F / sum[0], 1.0F / sum[1]}, rows, inside);
  }

 private:
  // The warpgroup's part of a tile, and the lane's two rows in it.
  struct Queries {
    ForwardTile tile;
    int first;           // query
    int oldest_of_last;  // the first key that the last query sees
    int row;             // query of the lane's first row, the second is 8 further
    int oldest[2];

    Queries() = default;
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
      return key + S::kBlock - 1 <= first && key >= oldest_of_last;
    }
  };

  __device__ ForwardControl<S>& control() const {
    return shared_.control();
  }

  // Whether a block of keys is beyond all queries' windows, or within all of them.
  __device__ bool is_far(const Queries& queries, int key) const {
    return arguments_.bias != nullptr &&
           queries.first - (key + S::kBlock - 1) > arguments_.forward.attention.window;
  }
  __device__ bool is_near(const Queries& queries, int key) const {
    return arguments_.bias == nullptr ||
           queries.first + 63 - key <= arguments_.forward.attention.window;
  }

  const TrainingForwardSm90& arguments_;
  const ForwardShared<S>& shared_;
  int warpgroup_;
  float scale_;      // of scores, in powers of two
  Queries queries_;  // of the tile whose scores are being issued
  Queries done_;     // of the tile before
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_kernel(const __grid_constant__ TrainingForwardSm90 arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  using Shared = ForwardShared<S>;
  const Shared shared{memory + (Shared::kAlignment - shared_address(memory)) % Shared::kAlignment};
  if (threadIdx.x == 0) {
    shared.control().init(1, 0);
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    if (threadIdx.x == S::kConsumers * kWarpgroup) {
      load_forward<S>(arguments, shared);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    AttentionConsumer<S, ForwardWork<S>, TrainingForwardSm90, Shared, kFirstIssue>(arguments,
                                                                                   shared)
        .run();
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
