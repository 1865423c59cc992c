// Forward of the delta rule: each chunk's matrices, then its states, chunk by chunk.
#include <algorithm>

#include "ops/cuda/training/training_delta.cuh"

namespace winnow::ops::cuda {
namespace {

extern __shared__ __align__(128) float delta_memory[];

struct SolveMemory {
  DeltaRows rows;
  float keys[kSliceFloats];
  float queries[kSliceFloats];
  float similarities[kMatrixFloats];
  float scores[kMatrixFloats];
  float inverse[kMatrixFloats];
};

// Sums of the log decays. Callers must synchronise before they read them.
__device__ void sum_decays(const TrainingDelta& rule, const DeltaPlace& place, float* logs) {
  const int i = threadIdx.x;
  if (i < kDeltaChunk) {
    const std::size_t token = place.begin() + i;
    logs[i] = token < std::size_t(rule.rows)
                  ? rule.log_decays[token * rule.heads.value_heads + place.head]
                  : 0.0F;
  }
  __syncthreads();
  if (i < kDeltaChunk) {
    float sum = 0.0F;
    for (int j = 0; j <= i; ++j) {
      sum += logs[j];
    }
    rule.scratch.sums[place.index(rule) * kDeltaChunk + i] = sum;
  }
  __syncthreads();
}

// (I + L)^-1 from the part L below the diagonal, a thread per column.
__device__ void invert(float* inverse, const float* lower) {
  const int j = threadIdx.x;
  if (j >= kDeltaChunk) {
    return;
  }
  for (int i = 0; i < kDeltaChunk; ++i) {
    float sum = i == j ? 1.0F : 0.0F;
    for (int l = 0; l < i; ++l) {
      sum -= lower[i * kMatrixStride + l] * inverse[l * kMatrixStride + j];
    }
    inverse[i * kMatrixStride + j] = sum;
  }
}

// A block: the matrices of one head of one chunk.
__global__ void __launch_bounds__(kDeltaThreads)
    solve_kernel(const __grid_constant__ DeltaBatch batch) {
  SolveMemory& memory = *reinterpret_cast<SolveMemory*>(delta_memory);
  const TrainingDelta& rule = batch.rule;
  const DeltaPlace place(rule, blockIdx.x, blockIdx.y);
  sum_decays(rule, place, memory.keys);
  memory.rows.load(rule, place);
  for (int slice = 0; slice < slices_of(rule.heads.key_dim); ++slice) {
    load_columns(memory.keys, kSliceStride, keys_of(rule, place), slice * kDeltaSlice);
    load_columns(memory.queries, kSliceStride, queries_of(rule, place), slice * kDeltaSlice);
    __syncthreads();
    const SharedMatrix keys{memory.keys, kSliceStride};
    const SharedMatrix queries{memory.queries, kSliceStride};
    const Transposed transposed{memory.keys, kSliceStride};
    multiply(memory.similarities, kMatrixStride, keys, transposed, kDeltaChunk, kDeltaChunk,
             kDeltaSlice, slice > 0);
    multiply(memory.scores, kMatrixStride, queries, transposed, kDeltaChunk, kDeltaChunk,
             kDeltaSlice, slice > 0);
    __syncthreads();
  }
  float* scores = place.matrix(rule, DeltaMatrix::scores);
  float* similarities = place.matrix(rule, DeltaMatrix::similarities);
  for_each_place(kDeltaChunk, kDeltaChunk, [&](int i, int j) {
    const float decay = j <= i ? memory.rows.between(i, j) : 0.0F;
    float& similarity = memory.similarities[i * kMatrixStride + j];
    const float own = j < i ? decay * similarity : 0.0F;
    similarities[i * kDeltaChunk + j] = own;
    scores[i * kDeltaChunk + j] = decay * memory.scores[i * kMatrixStride + j];
    similarity = memory.rows.rates[i] * own;
  });
  __syncthreads();
  invert(memory.inverse, memory.similarities);
  __syncthreads();
  float* inverse = place.matrix(rule, DeltaMatrix::inverse);
  for_each_place(kDeltaChunk, kDeltaChunk, [&](int i, int j) {
    inverse[i * kDeltaChunk + j] = memory.inverse[i * kMatrixStride + j];
  });
}

// A block's memory in scan_kernel; the state [key slices, kDeltaSlice] and a tile of keys or
// queries follow.
struct ScanMemory {
  DeltaRows rows;
  float matrix[kMatrixFloats];
  float errors[kSliceFloats];
  float updates[kSliceFloats];
  float out[kSliceFloats];
};

// Columns of a head, from the chunk where they begin.
class Scan {
 public:
  __device__ Scan(const DeltaBatch& batch)
      : batch_(batch),
        rule_(batch.rule),
        m_(*reinterpret_cast<ScanMemory*>(delta_memory)),
        first_(blockIdx.x * kDeltaSlice),
        inner_(slices_of(rule_.heads.key_dim) * kDeltaSlice),
        tile_stride_(inner_ + 4),
        state_(delta_memory + sizeof(ScanMemory) / sizeof(float)),
        tile_(state_ + inner_ * kSliceStride) {}

  __device__ void run(int chunk) {
    bool stores = !continues(rule_, chunk);
    if (!stores && !continues(rule_, chunk + 1)) {
      return;
    }
    for_each_place(inner_, kSliceStride, [&](int i, int j) { state_[i * kSliceStride + j] = 0; });
    for (bool begins = true;; begins = false, stores = true, ++chunk) {
      const DeltaPlace place(rule_, chunk, blockIdx.y);
      m_.rows.load(rule_, place);
      __syncthreads();
      take(place, stores);
      if (!continues(rule_, chunk + 1) || (!begins && parts(rule_, chunk))) {
        return;
      }
    }
  }

 private:
  // Updates and outputs of a chunk; afterwards the state is the one after it.
  __device__ void take(const DeltaPlace& place, bool stores) {
    const bool answers = stores && batch_.out != nullptr;
    if (stores) {
      store_state(place);
    }
    if (answers) {
      load_columns(tile_, tile_stride_, queries_of(rule_, place), 0, inner_);
      __syncthreads();
      multiply(m_.out, kSliceStride, tile(), state(), kDeltaChunk, kDeltaSlice, inner_, false);
      __syncthreads();
    }
    load_columns(tile_, tile_stride_, keys_of(rule_, place), 0, inner_);
    load_columns(m_.updates, kSliceStride, values_of(rule_, place), first_);
    load_matrix(m_.matrix, place.matrix(rule_, DeltaMatrix::inverse));
    __syncthreads();
    multiply(m_.errors, kSliceStride, tile(), state(), kDeltaChunk, kDeltaSlice, inner_, false);
    __syncthreads();
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      float& error = m_.errors[i * kSliceStride + c];
      error = m_.rows.rates[i] * (m_.updates[i * kSliceStride + c] - m_.rows.carried[i] * error);
      m_.out[i * kSliceStride + c] *= m_.rows.carried[i];
    });
    __syncthreads();
    multiply_matrix(m_.updates, m_.errors, false);
    __syncthreads();
    if (stores) {
      store_updates(place);
    }
    if (answers) {
      load_matrix(m_.matrix, place.matrix(rule_, DeltaMatrix::scores));
      __syncthreads();
      multiply_matrix(m_.out, m_.updates, true);
      __syncthreads();
      store_out(place);
    }
    advance();
  }

  __device__ void advance() {
    __syncthreads();
    for_each_place(kDeltaChunk, kDeltaSlice,
                   [&](int i, int c) { m_.updates[i * kSliceStride + c] *= m_.rows.kept[i]; });
    for_each_place(inner_, kDeltaSlice,
                   [&](int i, int c) { state_[i * kSliceStride + c] *= m_.rows.through(); });
    __syncthreads();
    multiply(state_, kSliceStride, Transposed{tile_, tile_stride_},
             SharedMatrix{m_.updates, kSliceStride}, inner_, kDeltaSlice, kDeltaChunk, true);
    __syncthreads();
  }

  [[nodiscard]] __device__ SharedMatrix tile() const { return {tile_, tile_stride_}; }
  [[nodiscard]] __device__ SharedMatrix state() const { return {state_, kSliceStride}; }

  __device__ void multiply_matrix(float* to, const float* x, bool add) const {
    multiply(to, kSliceStride, SharedMatrix{m_.matrix, kMatrixStride},
             SharedMatrix{x, kSliceStride}, kDeltaChunk, kDeltaSlice, kDeltaChunk, add);
  }

  __device__ void store_state(const DeltaPlace& place) const {
    const int dim = rule_.heads.value_dim;
    float* to = place.state(rule_, rule_.scratch.states);
    for_each_place(rule_.heads.key_dim, kDeltaSlice, [&](int i, int c) {
      if (first_ + c < dim) {
        to[i * dim + first_ + c] = state_[i * kSliceStride + c];
      }
    });
  }

  // body(index in [T, value_width], index in the slice) for all that exist.
  template <class Body>
  __device__ void for_each_value(const DeltaPlace& place, const Body& body) const {
    const int dim = rule_.heads.value_dim;
    for_each_place(kDeltaChunk, kDeltaSlice, [&](int i, int c) {
      const int token = place.begin() + i;
      if (token < rule_.rows && first_ + c < dim) {
        body(std::size_t(token) * values_of(rule_.heads) + place.head * dim + first_ + c,
             i * kSliceStride + c);
      }
    });
  }
  __device__ void store_updates(const DeltaPlace& place) const {
    for_each_value(place,
                   [&](std::size_t to, int from) { rule_.scratch.updates[to] = m_.updates[from]; });
  }
  __device__ void store_out(const DeltaPlace& place) const {
    for_each_value(place,
                   [&](std::size_t to, int from) { batch_.out[to] = to_bf16(m_.out[from]); });
  }

  const DeltaBatch& batch_;
  const TrainingDelta& rule_;
  ScanMemory& m_;
  int first_;  // column
  int inner_;  // key channels, padded to slices
  int tile_stride_;
  float* state_;
  float* tile_;
};

__global__ void __launch_bounds__(kDeltaThreads)
    scan_kernel(const __grid_constant__ DeltaBatch batch) {
  if (parts(batch.rule, blockIdx.z)) {
    Scan(batch).run(blockIdx.z);
  }
}

std::size_t scan_shared_memory(int key_dim) {
  return sizeof(ScanMemory) + scanned_bytes(key_dim);
}

std::size_t floats_of_chunks(const DeltaRuleShape& heads, int rows, int each) {
  return static_cast<std::size_t>(delta_chunks(rows)) *
         static_cast<std::size_t>(heads.value_heads) * static_cast<std::size_t>(each);
}

}  // namespace

DeltaScratch::DeltaScratch(const DeltaRuleShape& heads, int rows, float* memory) {
  const auto take = [&](float*& part, std::size_t count) {
    part = memory;
    memory += count;
  };
  const std::size_t values =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(values_of(heads));
  take(sums, floats_of_chunks(heads, rows, kDeltaChunk));
  take(matrices, floats_of_chunks(heads, rows, 3 * kDeltaChunk * kDeltaChunk));
  take(states, floats_of_chunks(heads, rows, matrix_of(heads)));
  take(dstates, floats_of_chunks(heads, rows, matrix_of(heads)));
  take(updates, values);
  take(dupdates, values);
}

std::size_t DeltaScratch::size(const DeltaRuleShape& heads, int rows) {
  const std::size_t values =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(values_of(heads));
  return floats_of_chunks(heads, rows,
                          kDeltaChunk + 3 * kDeltaChunk * kDeltaChunk + 2 * matrix_of(heads)) +
         2 * values;
}

std::size_t training_delta_shared_memory(int key_dim) {
  return std::max({sizeof(SolveMemory), scan_shared_memory(key_dim),
                   delta_states_shared_memory(key_dim), delta_chunks_shared_memory()});
}

void training_delta(const TrainingDelta& rule, bf16* out, cudaStream_t stream) {
  check_recurrent(rule.heads, 1);
  const DeltaBatch batch{.rule = rule, .out = out};
  launch_delta(solve_kernel, dim3(batch.chunks(), rule.heads.value_heads), sizeof(SolveMemory),
               batch, stream);
  launch_delta(scan_kernel,
               dim3(slices_of(rule.heads.value_dim), rule.heads.value_heads, batch.chunks()),
               scan_shared_memory(rule.heads.key_dim), batch, stream);
}

void training_delta_backward(const TrainingDelta& rule, const float* dout,
                             const TrainingDeltaGradients& gradients, cudaStream_t stream) {
  const DeltaBatch batch{.rule = rule, .dout = dout, .gradients = gradients, .out = nullptr};
  launch_delta_states_backward(batch, stream);
  launch_delta_chunks_backward(batch, stream);
}

}  // namespace winnow::ops::cuda
