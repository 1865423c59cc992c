// Scratch memory of training attention. Includes no CUDA: builds without it plan memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace winnow::ops::cuda {

/// Backward's data per query besides its vectors: the log-sum-exp of its scores in powers of
/// two, and the dot product of its output and the output's gradient.
struct QuerySums {
  float normalizer;
  float dot;
};

/// QuerySums are padded to a multiple of this, with normalizer infinity (all weights zero) after
/// the last token: it is a multiple of every kernel's tile.
inline constexpr int kTrainingRows = 128;

constexpr int padded_queries(int tokens) {
  return (tokens + kTrainingRows - 1) / kTrainingRows * kTrainingRows;
}

/// Whether Hopper has kernels of its own for the head dimension.
constexpr bool has_hopper_training(int head_dim) {
  return head_dim == 64 || head_dim == 128;
}

/// Queries that Hopper's backward takes at a time.
constexpr int backward_queries(int head_dim) {
  return head_dim == 64 ? 128 : 64;
}

/// Divides scratch memory into arrays; without memory, it computes the required size.
class TrainingScratch {
 public:
  explicit TrainingScratch(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::size_t count) {
    constexpr std::size_t kPart = 256;
    std::byte* begin = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * sizeof(T) + kPart - 1) / kPart * kPart;
    return reinterpret_cast<T*>(begin);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

/// Backward's arrays in scratch memory.
struct TrainingBackwardScratch {
  QuerySums* sums;
  // Used only on Hopper, but part of every device's, so that plans need no device:
  float* dqueries = nullptr;
  std::int32_t* next_keys = nullptr;
  std::int32_t* document_end = nullptr;
  std::int32_t* next_item = nullptr;

  TrainingBackwardScratch(TrainingScratch& scratch, int tokens, int query_heads, int head_dim) {
    const auto rows = static_cast<std::size_t>(padded_queries(tokens));
    const auto heads = static_cast<std::size_t>(query_heads);
    sums = scratch.take<QuerySums>(rows * heads);
    if (has_hopper_training(head_dim)) {
      const auto dim = static_cast<std::size_t>(head_dim);
      const auto queries = static_cast<std::size_t>(backward_queries(head_dim));
      dqueries = scratch.take<float>(rows * heads * dim);
      next_keys = scratch.take<std::int32_t>(rows / queries * heads);
      document_end = scratch.take<std::int32_t>(rows);
      next_item = scratch.take<std::int32_t>(1);
    }
  }
};

/// Forward's arrays in scratch memory.
struct TrainingForwardScratch {
  float* bias;
  std::int32_t* next_tile;

  TrainingForwardScratch(TrainingScratch& scratch, int tokens, int kv_heads) {
    bias = scratch.take<float>(static_cast<std::size_t>(padded_queries(tokens) * kv_heads));
    next_tile = scratch.take<std::int32_t>(1);
  }
};

/// Scratch memory for forward and backward of `tokens` tokens on any device, aligned to 256. Its
/// contents need not be kept between calls.
inline std::size_t training_attention_scratch_bytes(int tokens, int query_heads, int head_dim) {
  TrainingScratch forward(nullptr);
  TrainingForwardScratch(forward, tokens, query_heads);  // there are at most as many KV heads
  TrainingScratch backward(nullptr);
  TrainingBackwardScratch(backward, tokens, query_heads, head_dim);
  return std::max(forward.used(), backward.used());
}

}  // namespace winnow::ops::cuda
