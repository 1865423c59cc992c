// Backward of the delta rule within chunks, in parallel: gradients of queries, keys, rates, decays.
//
// With dP and dA the gradients of the matrices of the forward pass (training_delta.cuh),
// X = dP P + dA B A, element by element, is the gradient of log g(i, j); each decay m of the
// chunk is part of those with j < m <= i.
#include "ops/cuda/training/training_delta.cuh"

namespace winnow::ops::cuda {
namespace {

extern __shared__ __align__(128) float delta_memory[];

constexpr int kParts = kDeltaThreads / kDeltaChunk;  // threads of a row
constexpr int kStateFloats = kDeltaSlice * kSliceStride;

struct ChunkMemory {
  DeltaRows rows;
  float dscores[kMatrixFloats];  // then times g
  float dlower[kMatrixFloats];   // of B A, then times B g
  float first[kSliceFloats];
  float second[kSliceFloats];
  float third[kSliceFloats];
  // X, and once its sums are known the three sums of a slice of keys' channels.
  union {
    float products[kMatrixFloats];
    struct {
      float dqueries[kSliceFloats];
      float dkeys[kSliceFloats];
    };
  };
  float dkept[kSliceFloats];
  float state[kStateFloats];
  float dstate[kStateFloats];
};
// On devices with the least shared memory, heads of up to 128 channels must still train.
static_assert(sizeof(ChunkMemory) <= 99 * 1024);

// Sums for a row of the chunk, as far as one of the row's threads has them.
struct RowSums {
  float rate = 0.0F;     // of the gradient of the rate
  float along = 0.0F;    // X along the row
  float down = 0.0F;     // and down the column of the same number
  float carried = 0.0F;  // of g(i, before)
  float kept = 0.0F;     // of g(last, i)
  float through = 0.0F;  // of g(last, before), a part of the whole chunk's sum
};

class ChunkBackward {
 public:
  __device__ ChunkBackward(const DeltaBatch& batch)
      : batch_(batch),
        rule_(batch.rule),
        place_(batch.rule, blockIdx.x, blockIdx.y),
        m_(*reinterpret_cast<ChunkMemory*>(delta_memory)),
        row_(static_cast<int>(threadIdx.x) / kParts),
        part_(static_cast<int>(threadIdx.x) % kParts) {}

  __device__ void run() {
    m_.rows.load(rule_, place_);
    outer_products();
    through_matrices();
    for (int slice = 0; slice < slices_of(rule_.heads.key_dim); ++slice) {
      take_channels(slice * kDeltaSlice);
    }
    store_gates();
  }

 private:
  // dP = dO U^T and dA = -dE U^T, over all value channels.
  __device__ void outer_products() {
    const DeltaColumns values = values_of(rule_, place_);
    for (int slice = 0; slice < slices_of(rule_.heads.value_dim); ++slice) {
      load_values(slice * kDeltaSlice);
      __syncthreads();
      const Transposed updates{m_.third, kSliceStride};
      const SharedMatrix dout{m_.first, kSliceStride};
      const SharedMatrix derrors{m_.second, kSliceStride};
      multiply(m_.dscores, kMatrixStride, dout, updates, kDeltaChunk, kDeltaChunk, kDeltaSlice,
               slice > 0);
      multiply(m_.dlower, kMatrixStride, derrors, updates, kDeltaChunk, kDeltaChunk, kDeltaSlice,
               slice > 0);
      for (int c = part_; c < kDeltaSlice; c += kParts) {
        const int column = slice * kDeltaSlice + c;
        if (row_ < values.rows && column < values.cols) {
          sums_.rate += m_.second[row_ * kSliceStride + c] *
                        values.data[std::size_t(row_) * values.stride + column];
        }
      }
      __syncthreads();
    }
  }

  // Gradients of the outputs, of errors, and the updates.
  __device__ void load_values(int column) {
    load_columns(m_.first, kSliceStride, head_of(batch_.dout, rule_, place_), column);
    load_columns(m_.second, kSliceStride, head_of(rule_.scratch.dupdates, rule_, place_), column);
    load_columns(m_.third, kSliceStride, head_of(rule_.scratch.updates, rule_, place_), column);
  }

  __device__ void through_matrices() {
    const float* scores = place_.matrix(rule_, DeltaMatrix::scores);
    const float* similarities = place_.matrix(rule_, DeltaMatrix::similarities);
    const float rate = m_.rows.rates[row_];
    for (int j = part_; j < kDeltaChunk; j += kParts) {
      const int at = row_ * kMatrixStride + j;
      const int from = row_ * kDeltaChunk + j;
      const float decay = j <= row_ ? m_.rows.between(row_, j) : 0.0F;
      const float dscore = m_.dscores[at];
      const float dlower = j < row_ ? -m_.dlower[at] : 0.0F;
      const float product =
          j < row_ ? dscore * scores[from] + dlower * rate * similarities[from] : 0.0F;
      sums_.along += product;
      sums_.rate += j < row_ ? dlower * similarities[from] : 0.0F;
      m_.products[at] = product;
      m_.dscores[at] = dscore * decay;
      m_.dlower[at] = dlower * rate * decay;
    }
    __syncthreads();
    for (int i = part_; i < kDeltaChunk; i += kParts) {
      sums_.down += m_.products[i * kMatrixStride + row_];
    }
    __syncthreads();
  }

  // The gradients of some channels of queries and keys.
  __device__ void take_channels(int channel) {
    for (int slice = 0; slice < slices_of(rule_.heads.value_dim); ++slice) {
      through_states(channel, slice * kDeltaSlice, slice > 0);
    }
    load_columns(m_.first, kSliceStride, keys_of(rule_, place_), channel);
    load_columns(m_.second, kSliceStride, queries_of(rule_, place_), channel);
    __syncthreads();
    for (int c = part_; c < kDeltaSlice; c += kParts) {
      scale_and_sum(row_ * kSliceStride + c);
    }
    __syncthreads();
    const SharedMatrix keys{m_.first, kSliceStride};
    const SharedMatrix queries{m_.second, kSliceStride};
    add_product(m_.dqueries, SharedMatrix{m_.dscores, kMatrixStride}, keys);
    add_product(m_.dkeys, Transposed{m_.dscores, kMatrixStride}, queries);
    __syncwarp();
    add_product(m_.dkeys, SharedMatrix{m_.dlower, kMatrixStride}, keys);
    __syncwarp();
    add_product(m_.dkeys, Transposed{m_.dlower, kMatrixStride}, keys);
    __syncthreads();
    store_channels(channel);
    __syncthreads();
  }

  // dO S^T, dE S^T and U dS^T.
  __device__ void through_states(int channel, int column, bool add) {
    load_values(column);
    load_states(channel, column);
    __syncthreads();
    const Transposed state{m_.state, kSliceStride};
    const Transposed dstate{m_.dstate, kSliceStride};
    const auto into = [&](float* to, const float* x, const Transposed& with) {
      multiply(to, kSliceStride, SharedMatrix{x, kSliceStride}, with, kDeltaChunk, kDeltaSlice,
               kDeltaSlice, add);
    };
    into(m_.dqueries, m_.first, state);
    into(m_.dkeys, m_.second, state);
    into(m_.dkept, m_.third, dstate);
    __syncthreads();
  }

  __device__ void load_states(int channel, int column) {
    const DeltaRuleShape& heads = rule_.heads;
    const float* state = place_.state(rule_, rule_.scratch.states);
    const float* dstate = place_.state(rule_, rule_.scratch.dstates);
    for_each_place(kDeltaSlice, kDeltaSlice, [&](int i, int c) {
      const bool exists = channel + i < heads.key_dim && column + c < heads.value_dim;
      const std::size_t from = std::size_t(channel + i) * heads.value_dim + column + c;
      const float x = exists ? state[from] : 0.0F;
      const float dx = exists ? dstate[from] : 0.0F;
      m_.state[i * kSliceStride + c] = x;
      m_.dstate[i * kSliceStride + c] = dx;
      sums_.through += x * dx;
    });
  }

  __device__ void scale_and_sum(int at) {
    const float key = m_.first[at];
    const float rate = m_.rows.rates[row_];
    const float query_part = m_.rows.carried[row_] * m_.dqueries[at];
    const float error_part = -m_.rows.carried[row_] * m_.dkeys[at];
    const float kept_part = m_.rows.kept[row_] * m_.dkept[at];
    sums_.rate += key * error_part;
    sums_.carried += m_.second[at] * query_part + rate * key * error_part;
    sums_.kept += key * kept_part;
    m_.dqueries[at] = query_part;
    m_.dkeys[at] = rate * error_part + kept_part;
  }

  template <class Matrix>
  __device__ void add_product(float* to, const Matrix& matrix, const SharedMatrix& x) const {
    multiply(to, kSliceStride, matrix, x, kDeltaChunk, kDeltaSlice, kDeltaChunk, true);
  }

  __device__ void store_channels(int channel) const {
    const DeltaRuleShape& heads = rule_.heads;
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      const int token = place_.begin() + i;
      if (token < rule_.rows && channel + c < heads.key_dim) {
        const std::size_t to =
            (std::size_t(token) * heads.value_heads + place_.head) * heads.key_dim + channel + c;
        batch_.gradients.queries[to] = m_.dqueries[i * kSliceStride + c];
        batch_.gradients.keys[to] = m_.dkeys[i * kSliceStride + c];
      }
    });
  }

  // The sum over the threads of a row, returned to the first; then of all rows in order.
  __device__ void add_row(float* to, float x) const {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
    x += __shfl_xor_sync(0xFFFFFFFFU, x, 2);
    if (part_ == 0) {
      to[row_] = x;
    }
  }

  __device__ void store_gates() {
    static_assert(kParts == 4);
    float* differences = m_.first;  // down - along
    float* carried = differences + kDeltaChunk;
    float* kept = carried + kDeltaChunk;
    float* rates = kept + kDeltaChunk;
    float* through = rates + kDeltaChunk;
    add_row(differences, sums_.down - sums_.along);
    add_row(carried, sums_.carried);
    add_row(kept, sums_.kept);
    add_row(rates, sums_.rate);
    add_row(through, sums_.through);
    __syncthreads();
    const int m = threadIdx.x;
    const int token = place_.begin() + m;
    if (m >= kDeltaChunk || token >= rule_.rows) {
      return;
    }
    float sum = 0.0F;
    for (int i = 0; i < kDeltaChunk; ++i) {
      sum += through[i];
    }
    sum *= m_.rows.through();
    for (int i = 0; i < kDeltaChunk; ++i) {
      sum += i < m ? differences[i] + kept[i] : carried[i];
    }
    const std::size_t to = std::size_t(token) * rule_.heads.value_heads + place_.head;
    batch_.gradients.rates[to] = rates[m];
    batch_.gradients.log_decays[to] = sum;
  }

  const DeltaBatch& batch_;
  const TrainingDelta& rule_;
  DeltaPlace place_;
  ChunkMemory& m_;
  int row_;   // the thread's row of the chunk
  int part_;  // among the row's threads
  RowSums sums_;
};

__global__ void __launch_bounds__(kDeltaThreads)
    chunk_kernel(const __grid_constant__ DeltaBatch batch) {
  ChunkBackward(batch).run();
}

}  // namespace

std::size_t delta_chunks_shared_memory() {
  return sizeof(ChunkMemory);
}

void launch_delta_chunks_backward(const DeltaBatch& batch, cudaStream_t stream) {
  launch_delta(chunk_kernel, dim3(batch.chunks(), batch.rule.heads.value_heads),
               delta_chunks_shared_memory(), batch, stream);
}

}  // namespace winnow::ops::cuda
