// Chunks of the delta rule in shared memory, for the kernels of training_delta.h.
//
// In a chunk with the state S before it, let g(i, j) be the product of the decays after token j up
// to token i (0 across documents), G = diag(g(i, before the chunk)) and B = diag(rates). The
// updates U, a row per token, and outputs O are
//   U = M B (V - G K S),  M = (I + B A)^-1,  A(i, j) = g(i, j) k_i . k_j for j < i
//   O = G Q S + P U,      P(i, j) = g(i, j) q_i . k_j for j <= i
// and with the last token's row of g as E = diag(g(last, j)) the state after the chunk is
//   g(last, before) S + K^T E U.
#pragma once

#include <mma.h>

#include <cstdint>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/recurrent/recurrent_rows.h"
#include "ops/cuda/training/training_delta.h"

namespace winnow::ops::cuda {

inline constexpr int kDeltaThreads = 256;
inline constexpr int kDeltaSlice = 32;                 // columns that are processed together
inline constexpr int kSliceStride = kDeltaSlice + 4;   // of rows in shared memory
inline constexpr int kMatrixStride = kDeltaChunk + 4;  // the same of a chunk's matrices
inline constexpr int kSliceFloats = kDeltaChunk * kSliceStride;
inline constexpr int kMatrixFloats = kDeltaChunk * kMatrixStride;

constexpr int slices_of(int dim) {
  return (dim + kDeltaSlice - 1) / kDeltaSlice;
}
constexpr int delta_chunks(int rows) {
  return (rows + kDeltaChunk - 1) / kDeltaChunk;
}

/// A chunk's matrices in scratch.
enum class DeltaMatrix : std::uint8_t { inverse, scores, similarities };  // M, P, A

/// What the host hands to the kernels.
struct DeltaBatch {
  TrainingDelta rule;
  const float* dout = nullptr;
  TrainingDeltaGradients gradients = {};
  bf16* out = nullptr;

  [[nodiscard]] __host__ __device__ int chunks() const { return delta_chunks(rule.rows); }
};

/// One head of one chunk.
struct DeltaPlace {
  int chunk;
  int head;
  int key_head;

  __device__ DeltaPlace(const TrainingDelta& rule, int c, int h)
      : chunk(c), head(h), key_head(h / (rule.heads.value_heads / rule.heads.key_heads)) {}

  [[nodiscard]] __device__ int begin() const { return chunk * kDeltaChunk; }
  [[nodiscard]] __device__ std::size_t index(const TrainingDelta& rule) const {
    return std::size_t(chunk) * rule.heads.value_heads + head;
  }
  __device__ float* matrix(const TrainingDelta& rule, DeltaMatrix which) const {
    return rule.scratch.matrices +
           (3 * index(rule) + static_cast<int>(which)) * kDeltaChunk * kDeltaChunk;
  }
  /// The chunk's part of states or of their gradients.
  __device__ float* state(const TrainingDelta& rule, float* states) const {
    return states + index(rule) * matrix_of(rule.heads);
  }
};

/// Where a token's document begins; tokens after the last one are documents of their own.
inline __device__ int first_of(const TrainingDelta& rule, int token) {
  return token < rule.rows ? rule.first_key[token] : token;
}

/// Whether a document continues from the chunk before.
inline __device__ bool continues(const TrainingDelta& rule, int chunk) {
  return chunk < delta_chunks(rule.rows) &&
         first_of(rule, chunk * kDeltaChunk) < chunk * kDeltaChunk;
}
/// Whether the last token's document begins in the chunk: later chunks then do not depend on
/// earlier ones.
inline __device__ bool parts(const TrainingDelta& rule, int chunk) {
  return first_of(rule, (chunk + 1) * kDeltaChunk - 1) >= chunk * kDeltaChunk;
}

/// Data on the tokens of a chunk, in shared memory.
struct DeltaRows {
  int firsts[kDeltaChunk];
  float sums[kDeltaChunk];
  float rates[kDeltaChunk];
  float carried[kDeltaChunk];  // g(i, before the chunk)
  float kept[kDeltaChunk];     // g(last, i)

  /// Call once `sums` are in scratch. Other threads may read after the next barrier.
  __device__ void load(const TrainingDelta& rule, const DeltaPlace& place) {
    const int i = threadIdx.x;
    if (i >= kDeltaChunk) {
      return;
    }
    const int token = place.begin() + i;
    const float* all = rule.scratch.sums + place.index(rule) * kDeltaChunk;
    firsts[i] = first_of(rule, token);
    sums[i] = all[i];
    rates[i] = token < rule.rows
                   ? rule.rates[std::size_t(token) * rule.heads.value_heads + place.head]
                   : 0.0F;
    carried[i] = firsts[i] < place.begin() ? expf(all[i]) : 0.0F;
    const int last = first_of(rule, place.begin() + kDeltaChunk - 1);
    kept[i] = firsts[i] == last ? expf(all[kDeltaChunk - 1] - all[i]) : 0.0F;
  }

  /// g(i, j) for j <= i.
  [[nodiscard]] __device__ float between(int i, int j) const {
    return firsts[i] == firsts[j] ? expf(sums[i] - sums[j]) : 0.0F;
  }
  /// g(last, before the chunk).
  [[nodiscard]] __device__ float through() const { return carried[kDeltaChunk - 1]; }
};

/// Columns of some tokens' rows.
struct DeltaColumns {
  const float* data;  // the first token's first column
  int stride;         // from row to row
  int rows;           // zeros after them
  int cols;           // the same

  __device__ DeltaColumns(const float* x, const TrainingDelta& rule, const DeltaPlace& place,
                          int width, int first, int dim)
      : data(x + std::size_t(place.begin()) * width + first),
        stride(width),
        rows(min(kDeltaChunk, rule.rows - place.begin())),
        cols(dim) {}
};

inline __device__ DeltaColumns queries_of(const TrainingDelta& rule, const DeltaPlace& place) {
  return {
      rule.mixed,        rule, place, channels_of(rule.heads), place.key_head * rule.heads.key_dim,
      rule.heads.key_dim};
}
inline __device__ DeltaColumns keys_of(const TrainingDelta& rule, const DeltaPlace& place) {
  return {rule.mixed,
          rule,
          place,
          channels_of(rule.heads),
          keys_of(rule.heads) + place.key_head * rule.heads.key_dim,
          rule.heads.key_dim};
}
inline __device__ DeltaColumns values_of(const TrainingDelta& rule, const DeltaPlace& place) {
  return {rule.mixed,
          rule,
          place,
          channels_of(rule.heads),
          2 * keys_of(rule.heads) + place.head * rule.heads.value_dim,
          rule.heads.value_dim};
}
/// A head's columns of x [T, value_width].
inline __device__ DeltaColumns head_of(const float* x, const TrainingDelta& rule,
                                       const DeltaPlace& place) {
  return {x,
          rule,
          place,
          values_of(rule.heads),
          place.head * rule.heads.value_dim,
          rule.heads.value_dim};
}

/// body(i, j) for all of `rows` rows and `cols` columns, by the block.
template <class Body>
__device__ void for_each_place(int rows, int cols, const Body& body) {
  for (int at = threadIdx.x; at < rows * cols; at += kDeltaThreads) {
    body(at / cols, at % cols);
  }
}

/// to [kDeltaChunk, cols], rows `stride` apart, = the columns of x from `first` on.
inline __device__ void load_columns(float* to, int stride, const DeltaColumns& x, int first,
                                    int cols = kDeltaSlice) {
  for_each_place(kDeltaChunk, cols / 4, [&](int i, int four) {
    const int c = first + 4 * four;
    const bool exists = i < x.rows && c < x.cols;
    *reinterpret_cast<float4*>(to + i * stride + 4 * four) =
        exists ? *reinterpret_cast<const float4*>(x.data + std::size_t(i) * x.stride + c)
               : float4{};
  });
}

/// A chunk's matrix.
inline __device__ void load_matrix(float* to, const float* from) {
  for_each_place(kDeltaChunk, kDeltaChunk / 4, [&](int i, int four) {
    *reinterpret_cast<float4*>(to + i * kMatrixStride + 4 * four) =
        *reinterpret_cast<const float4*>(from + i * kDeltaChunk + 4 * four);
  });
}

/// A matrix in shared memory, or its transpose.
struct SharedMatrix {
  const float* data;
  int stride;
};
struct Transposed {
  const float* data;
  int stride;
};

template <class Kind, class Matrix>
struct DeltaFragment;

template <class Kind>
struct DeltaFragment<Kind, SharedMatrix> {
  nvcuda::wmma::fragment<Kind, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::row_major> x;
  __device__ void load(const SharedMatrix& m, int row, int col) {
    nvcuda::wmma::load_matrix_sync(x, m.data + row * m.stride + col, m.stride);
  }
};
template <class Kind>
struct DeltaFragment<Kind, Transposed> {
  nvcuda::wmma::fragment<Kind, 16, 16, 8, nvcuda::wmma::precision::tf32, nvcuda::wmma::col_major> x;
  __device__ void load(const Transposed& m, int row, int col) {
    nvcuda::wmma::load_matrix_sync(x, m.data + col * m.stride + row, m.stride);
  }
};

/// c [rows, cols] = a b, or += with `add`, with operands rounded to TF32; rows and cols
/// are multiples of 16, `inner` of 8. The caller must synchronise.
template <class A, class B>
__device__ void multiply(float* c, int stride, const A& a, const B& b, int rows, int cols,
                         int inner, bool add) {
  namespace wmma = nvcuda::wmma;
  constexpr int kTile = 16;
  const int across = cols / kTile;
  for (int tile = threadIdx.x / kLanes; tile < rows / kTile * across;
       tile += kDeltaThreads / kLanes) {
    const int row = tile / across * kTile;
    const int col = tile % across * kTile;
    float* to = c + row * stride + col;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    if (add) {
      wmma::load_matrix_sync(sum, to, stride, wmma::mem_row_major);
    } else {
      wmma::fill_fragment(sum, 0.0F);
    }
    for (int k = 0; k < inner; k += 8) {
      DeltaFragment<wmma::matrix_a, A> left;
      DeltaFragment<wmma::matrix_b, B> right;
      left.load(a, row, k);
      right.load(b, k, col);
      for (int i = 0; i < left.x.num_elements; ++i) {
        left.x.x[i] = wmma::__float_to_tf32(left.x.x[i]);
      }
      for (int i = 0; i < right.x.num_elements; ++i) {
        right.x.x[i] = wmma::__float_to_tf32(right.x.x[i]);
      }
      wmma::mma_sync(sum, left.x, right.x, sum);
    }
    wmma::store_matrix_sync(to, sum, stride, wmma::mem_row_major);
  }
}

/// Bytes after a chunk's data in kernels that scan columns: a state's columns
/// [key slices, kDeltaSlice] and a tile of keys or queries.
constexpr std::size_t scanned_bytes(int key_dim) {
  const auto inner = static_cast<std::size_t>(slices_of(key_dim)) * kDeltaSlice;
  return (inner * kSliceStride + kDeltaChunk * (inner + 4)) * sizeof(float);
}

/// Launches a kernel with more shared memory than the default limit.
template <class Kernel>
void launch_delta(Kernel* kernel, dim3 grid, std::size_t shared, const DeltaBatch& batch,
                  cudaStream_t stream) {
  winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
  winnow::cuda::launch(kernel, grid, kDeltaThreads, shared, stream, false, batch);
}

/// The parts of training_delta_backward(): gradients of states and values; then all others.
void launch_delta_states_backward(const DeltaBatch& batch, cudaStream_t stream);
void launch_delta_chunks_backward(const DeltaBatch& batch, cudaStream_t stream);
/// Bytes of shared memory per block of each kernel.
std::size_t delta_states_shared_memory(int key_dim);
std::size_t delta_chunks_shared_memory();

}  // namespace winnow::ops::cuda
