#include "ops/cuda/training_attention.h"

#include "base/error.h"
#include "ops/cuda/training_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kMostDim = 128;
constexpr std::size_t kAlignment = 16;

int padded(int tokens) {
  return (tokens + kTrainingRows - 1) / kTrainingRows * kTrainingRows;
}

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

// What every call needs of the shapes; q is the number of columns of queries.
void require_valid(const TrainingAttention& attention) {
  const int dim = attention.head_dim;
  require(dim >= 8 && dim <= kMostDim && dim % 8 == 0,
          "training attention: head dimension {}, expected a multiple of 8 up to {}", dim,
          kMostDim);
  require(attention.group >= 1 && attention.window >= 0,
          "training attention: {} query heads per KV head, window {}", attention.group,
          attention.window);
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

}  // namespace

std::size_t training_attention_scratch_bytes(int tokens, int query_heads, int /*head_dim*/) {
  return static_cast<std::size_t>(padded(tokens)) * static_cast<std::size_t>(query_heads) *
         sizeof(QuerySums);
}

void training_attention(const TrainingAttention& attention, Matrix<bf16> out,
                        Matrix<float> normalizers, std::byte* /*scratch*/, cudaStream_t stream,
                        TrainingKernel /*kernel*/) {
  require_valid(attention);
  const std::size_t rows = attention.queries.rows;
  const int kv_heads = kv_heads_of(attention);
  require_rows_of_16_bytes(out, "out", rows, attention.queries.cols);
  require_shape(normalizers, "normalizers", rows,
                static_cast<std::size_t>(kv_heads * attention.group));
  launch_training_forward({attention, out, normalizers, tokens_of(attention), kv_heads}, stream);
}

void training_attention_backward(const TrainingAttention& attention, Matrix<const bf16> out,
                                 Matrix<const float> normalizers, Matrix<const bf16> dout,
                                 const TrainingAttentionGradients& gradients, std::byte* scratch,
                                 cudaStream_t stream, TrainingKernel /*kernel*/) {
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
  const TrainingBackward backward{attention,
                                  out,
                                  normalizers,
                                  dout,
                                  gradients,
                                  tokens_of(attention),
                                  padded(tokens_of(attention)),
                                  kv_heads,
                                  reinterpret_cast<QuerySums*>(scratch)};
  launch_query_sums(backward, stream);
  launch_training_backward(backward, stream);
}

}  // namespace winnow::ops::cuda
