// Backward of the delta rule from the last chunk to the first: the gradients of states, of the
// tokens' updates, and of values.
#include "ops/cuda/training/training_delta.cuh"

namespace winnow::ops::cuda {
namespace {

extern __shared__ __align__(128) float delta_memory[];

// A block's memory; the gradient of a state [key slices, kDeltaSlice] and a tile of keys or
// queries follow.
struct ReverseMemory {
  DeltaRows rows;
  float matrix[kMatrixFloats];
  float dout[kSliceFloats];
  float dupdates[kSliceFloats];
  float errors[kSliceFloats];
};

// Columns of a head, from the last chunk of a document back to its first.
class Reverse {
 public:
  __device__ Reverse(const DeltaBatch& batch)
      : batch_(batch),
        rule_(batch.rule),
        m_(*reinterpret_cast<ReverseMemory*>(delta_memory)),
        first_(blockIdx.x * kDeltaSlice),
        inner_(slices_of(rule_.heads.key_dim) * kDeltaSlice),
        tile_stride_(inner_ + 4),
        state_(delta_memory + sizeof(ReverseMemory) / sizeof(float)),
        tile_(state_ + inner_ * kSliceStride) {}

  __device__ void run(int chunk) {
    bool stores = !continues(rule_, chunk + 1);
    if (!stores && !continues(rule_, chunk)) {
      return;
    }
    for_each_place(inner_, kSliceStride, [&](int i, int j) { state_[i * kSliceStride + j] = 0; });
    for (bool begins = true;; begins = false, stores = true, --chunk) {
      const DeltaPlace place(rule_, chunk, blockIdx.y);
      m_.rows.load(rule_, place);
      __syncthreads();
      through_updates(place, stores);
      if (!continues(rule_, chunk) || (!begins && parts(rule_, chunk))) {
        return;
      }
      retreat(place);
    }
  }

 private:
  // dU = P^T dO + E K dS; the errors' gradient is M^T dU, and times the rates it is the values'.
  __device__ void through_updates(const DeltaPlace& place, bool stores) {
    if (stores) {
      store_state(place);
    }
    load_columns(tile_, tile_stride_, keys_of(rule_, place), 0, inner_);
    load_columns(m_.dout, kSliceStride, head_of(batch_.dout, rule_, place), first_);
    load_matrix(m_.matrix, place.matrix(rule_, DeltaMatrix::scores));
    __syncthreads();
    multiply_transposed(m_.dupdates, m_.dout);
    multiply(m_.errors, kSliceStride, SharedMatrix{tile_, tile_stride_},
             SharedMatrix{state_, kSliceStride}, kDeltaChunk, kDeltaSlice, inner_, false);
    __syncthreads();
    load_matrix(m_.matrix, place.matrix(rule_, DeltaMatrix::inverse));
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      const int at = i * kSliceStride + c;
      m_.dupdates[at] += m_.rows.kept[i] * m_.errors[at];
    });
    __syncthreads();
    multiply_transposed(m_.errors, m_.dupdates);
    __syncthreads();
    if (stores) {
      store_values(place);
    }
  }

  // dS = g(last, before) dS + (G Q)^T dO - (G K)^T B dE.
  __device__ void retreat(const DeltaPlace& place) {
    __syncthreads();
    for_each_place(inner_, kDeltaSlice,
                   [&](int i, int c) { state_[i * kSliceStride + c] *= m_.rows.through(); });
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      const int at = i * kSliceStride + c;
      m_.errors[at] *= -m_.rows.carried[i] * m_.rows.rates[i];
      m_.dout[at] *= m_.rows.carried[i];
    });
    __syncthreads();
    add_to_state(m_.errors);
    __syncthreads();
    load_columns(tile_, tile_stride_, queries_of(rule_, place), 0, inner_);
    __syncthreads();
    add_to_state(m_.dout);
    __syncthreads();
  }

  __device__ void add_to_state(const float* x) {
    multiply(state_, kSliceStride, Transposed{tile_, tile_stride_}, SharedMatrix{x, kSliceStride},
             inner_, kDeltaSlice, kDeltaChunk, true);
  }
  __device__ void multiply_transposed(float* to, const float* x) const {
    multiply(to, kSliceStride, Transposed{m_.matrix, kMatrixStride}, SharedMatrix{x, kSliceStride},
             kDeltaChunk, kDeltaSlice, kDeltaChunk, false);
  }

  __device__ void store_state(const DeltaPlace& place) const {
    const int dim = rule_.heads.value_dim;
    float* to = place.state(rule_, rule_.scratch.dstates);
    for_each_place(rule_.heads.key_dim, kDeltaSlice, [&](int i, int c) {
      if (first_ + c < dim) {
        to[i * dim + first_ + c] = state_[i * kSliceStride + c];
      }
    });
  }
  __device__ void store_values(const DeltaPlace& place) const {
    const int dim = rule_.heads.value_dim;
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      const int token = place.begin() + i;
      if (token < rule_.rows && first_ + c < dim) {
        const std::size_t to =
            std::size_t(token) * values_of(rule_.heads) + place.head * dim + first_ + c;
        const float error = m_.errors[i * kSliceStride + c];
        rule_.scratch.dupdates[to] = error;
        batch_.gradients.values[to] = m_.rows.rates[i] * error;
      }
    });
  }

  const DeltaBatch& batch_;
  const TrainingDelta& rule_;
  ReverseMemory& m_;
  int first_;  // column
  int inner_;  // key channels, padded to slices
  int tile_stride_;
  float* state_;
  float* tile_;
};

__global__ void __launch_bounds__(kDeltaThreads)
    reverse_kernel(const __grid_constant__ DeltaBatch batch) {
  const int chunk = blockIdx.z;
  if (parts(batch.rule, chunk) || !continues(batch.rule, chunk + 1)) {
    Reverse(batch).run(chunk);
  }
}

}  // namespace

std::size_t delta_states_shared_memory(int key_dim) {
  return sizeof(ReverseMemory) + scanned_bytes(key_dim);
}

void launch_delta_states_backward(const DeltaBatch& batch, cudaStream_t stream) {
  const DeltaRuleShape& heads = batch.rule.heads;
  launch_delta(reverse_kernel, dim3(slices_of(heads.value_dim), heads.value_heads, batch.chunks()),
               delta_states_shared_memory(heads.key_dim), batch, stream);
}

}  // namespace winnow::ops::cuda
