#include "ops/cuda/training/training_attention.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/general/training_attention.h"
#include "ops/cuda/hopper.h"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kAlignment = 16;

int tokens_of(const TrainingAttention& attention) {
  return static_cast<int>(attention.queries.rows);
}

int kv_heads_of(const TrainingAttention& attention) {
  return static_cast<int>(attention.keys.cols) / attention.head_dim;
}

template <class T>
void require_shape(const Matrix<T>& matrix, std::string_view name, std::size_t rows,
                   std::size_t cols) {
  require(matrix.rows == rows && matrix.cols == cols,
          "training attention: {} of shape [{}, {}], expected [{}, {}]", name, matrix.rows,
          matrix.cols, rows, cols);
}

template <class T>
void require_rows_of_16_bytes(const Matrix<T>& matrix, std::string_view name, std::size_t rows,
                              std::size_t cols) {
  require_shape(matrix, name, rows, cols);
  require(reinterpret_cast<std::uintptr_t>(matrix.data) % kAlignment == 0 &&
              matrix.stride * sizeof(T) % kAlignment == 0,
          "training attention: rows of {} do not begin at multiples of {} bytes", name, kAlignment);
}

// Checks the shapes of any call; q is the number of columns of queries.
void require_valid(const TrainingAttention& attention) {
  const int dim = attention.head_dim;
  require(dim >= 8 && dim <= kMostHeadDim && dim % 8 == 0,
          "training attention: head dimension {}, expected a multiple of 8 up to {}", dim,
          kMostHeadDim);
  require(attention.group >= 1 && attention.window >= 0 && attention.scale > 0.0F,
          "training attention: {} query heads per KV head, window {}, scale {}", attention.group,
          attention.window, attention.scale);
  require(attention.reach >= 0 && attention.soft_cap >= 0.0F,
          "training attention: reach {}, soft cap {}", attention.reach, attention.soft_cap);
  const std::size_t rows = attention.queries.rows;
  const auto heads = static_cast<std::size_t>(kv_heads_of(attention));
  const std::size_t cols = heads * static_cast<std::size_t>(dim);
  require(rows >= 1 && heads >= 1, "training attention: {} tokens, {} KV heads", rows, heads);
  require_rows_of_16_bytes(attention.queries, "queries", rows,
                           cols * static_cast<std::size_t>(attention.group));
  require_rows_of_16_bytes(attention.keys, "keys", rows, cols);
  require_rows_of_16_bytes(attention.values, "values", rows, cols);
  if (attention.bias.rows != 0) {
    require_shape(attention.bias, "bias", rows, heads);
  }
}

// Whether the kernels with matrix instructions support the attention.
bool has_own_kernel(const TrainingAttention& attention) {
  constexpr int kMostOwnDim = 128;
  return attention.head_dim <= kMostOwnDim && attention.reach == 0 && attention.soft_cap == 0.0F &&
         attention.sinks == nullptr;
}

bool has_hopper_kernel(int head_dim) {
  return has_hopper_training(head_dim) && has_wgmma();
}

/// The same with a window of at most T, so that kernels can add to it without overflow.
TrainingAttention limited(TrainingAttention attention) {
  attention.window = std::min(attention.window, tokens_of(attention));
  return attention;
}

}  // namespace

void training_attention(const TrainingAttention& attention, Matrix<bf16> out,
                        Matrix<float> normalizers, std::byte* scratch, cudaStream_t stream,
                        TrainingKernel kernel) {
  require_valid(attention);
  const std::size_t rows = attention.queries.rows;
  const int kv_heads = kv_heads_of(attention);
  require_rows_of_16_bytes(out, "out", rows, attention.queries.cols);
  require_shape(normalizers, "normalizers", rows,
                static_cast<std::size_t>(kv_heads * attention.group));
  const TrainingForward forward{limited(attention), out, normalizers, tokens_of(attention),
                                kv_heads};
  if (kernel == TrainingKernel::general || !has_own_kernel(attention)) {
    launch_general_training_forward(forward, stream);
    return;
  }
  if (kernel == TrainingKernel::portable || !has_hopper_kernel(attention.head_dim)) {
    launch_training_forward(forward, stream);
    return;
  }
  TrainingScratch memory(scratch);
  const TrainingForwardScratch arrays(memory, forward.tokens, kv_heads);
  const TrainingForwardSm90 arguments{
      slab_map(attention.queries, forward_queries(attention.head_dim)),
      slab_map(attention.keys, kTrainingRows),
      slab_map(attention.values, kTrainingRows),
      forward,
      padded_queries(forward.tokens),
      attention.bias.rows != 0 ? arrays.bias : nullptr,
      arrays.next_tile};
  launch_forward_plan(arguments, stream);
  launch_training_forward_sm90(arguments, stream);
}

void training_attention_backward(const TrainingAttention& attention, Matrix<const bf16> out,
                                 Matrix<const float> normalizers, Matrix<const bf16> dout,
                                 const TrainingAttentionGradients& gradients, std::byte* scratch,
                                 cudaStream_t stream, TrainingKernel kernel) {
  require_valid(attention);
  const std::size_t rows = attention.queries.rows;
  const int kv_heads = kv_heads_of(attention);
  require_rows_of_16_bytes(out, "out", rows, attention.queries.cols);
  require_rows_of_16_bytes(dout, "dout", rows, attention.queries.cols);
  require_shape(normalizers, "normalizers", rows,
                static_cast<std::size_t>(kv_heads * attention.group));
  require_rows_of_16_bytes(gradients.queries, "dqueries", rows, attention.queries.cols);
  require_rows_of_16_bytes(gradients.keys, "dkeys", rows, attention.keys.cols);
  require_rows_of_16_bytes(gradients.values, "dvalues", rows, attention.values.cols);
  require_shape(gradients.bias, "dbias", attention.bias.rows, attention.bias.cols);
  const int tokens = tokens_of(attention);
  TrainingScratch memory(scratch);
  const TrainingBackwardScratch arrays(memory, tokens, kv_heads * attention.group,
                                       attention.head_dim);
  const TrainingBackward backward{
      limited(attention),     out,      normalizers, dout, gradients, tokens,
      padded_queries(tokens), kv_heads, arrays.sums};
  if (kernel == TrainingKernel::general || !has_own_kernel(attention)) {
    launch_general_training_backward(backward, stream);
    return;
  }
  launch_query_sums(backward, stream);
  if (kernel == TrainingKernel::portable || !has_hopper_kernel(attention.head_dim)) {
    launch_training_backward(backward, stream);
    return;
  }
  const int queries = backward_queries(attention.head_dim);
  const TrainingBackwardSm90 arguments{slab_map(attention.queries, queries),
                                       slab_map(dout, queries),
                                       slab_map(attention.keys, kTrainingRows),
                                       slab_map(attention.values, kTrainingRows),
                                       backward,
                                       arrays.dqueries,
                                       backward.padded_tokens / queries,
                                       arrays.next_keys,
                                       arrays.document_end,
                                       arrays.next_item};
  launch_backward_plan(arguments, stream);
  launch_training_backward_sm90(arguments, stream);
  launch_store_dqueries(arguments, stream);
}

}  // namespace winnow::ops::cuda
