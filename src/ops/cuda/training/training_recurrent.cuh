// The layout of a recurrent layer's projections, and warps that process heads.
#pragma once

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/cuda/recurrent/recurrent_rows.h"
#include "ops/cuda/training/training_recurrent.h"

namespace winnow::ops::cuda {

inline constexpr int kRecurrentThreads = 256;
inline constexpr int kRecurrentWarps = kRecurrentThreads / kLanes;
inline constexpr int kLaneChannels = kMostRecurrentDim / kLanes;  // of a head, at most

inline __device__ int projected_width(const DeltaRuleShape& heads) {
  return channels_of(heads) + values_of(heads);
}
inline __device__ int group_of(const DeltaRuleShape& heads) {
  return heads.value_heads / heads.key_heads;
}
/// Columns of a key head where projections are joined.
inline __device__ int joined_width(const DeltaRuleShape& heads) {
  return 2 * heads.key_dim + 2 * group_of(heads) * heads.value_dim;
}

/// A head among those of queries, keys and values.
struct RecurrentHead {
  int width;
  int channel;  // its first among all that are convolved
  int column;   // the column of its projection
  int key_head;
  int value_head = -1;
  bool is_query;

  __device__ RecurrentHead(const TrainingRecurrent& layer, int index) {
    const DeltaRuleShape& heads = layer.heads;
    const int keys = heads.key_heads;
    is_query = index < keys;
    if (index < 2 * keys) {
      width = heads.key_dim;
      channel = index * width;
      key_head = index % keys;
      column = key_head * joined_width(heads) + (is_query ? 0 : width);
    } else {
      width = heads.value_dim;
      value_head = index - 2 * keys;
      channel = 2 * keys_of(heads) + value_head * width;
      key_head = value_head / group_of(heads);
      column =
          key_head * joined_width(heads) + 2 * heads.key_dim + value_head % group_of(heads) * width;
    }
    column = layer.joined ? column : channel;
  }

  /// For a value head: the column of its output gates.
  [[nodiscard]] __device__ int gates(const TrainingRecurrent& layer) const {
    return column + (layer.joined ? group_of(layer.heads) * width : values_of(layer.heads));
  }
};

/// Columns of a value head's logits.
struct GateColumns {
  int rate;
  int decay;

  __device__ GateColumns(const TrainingRecurrent& layer, int head) {
    const int group = layer.joined ? group_of(layer.heads) : layer.heads.value_heads;
    rate = head / group * 2 * group + head % group;
    decay = rate + group;
  }
};

/// body(row, index) for all pairs, a warp each in turn.
template <class Body>
__device__ void for_each_head(int rows, int heads, const Body& body) {
  const std::size_t count = static_cast<std::size_t>(rows) * heads;
  for (std::size_t i = std::size_t{blockIdx.x} * kRecurrentWarps + threadIdx.x / kLanes; i < count;
       i += std::size_t{gridDim.x} * kRecurrentWarps) {
    body(static_cast<int>(i / heads), static_cast<int>(i % heads));
  }
}

/// body(i, channel) for the channels of a head that a lane has.
template <class Body>
__device__ void for_lane_channels(int width, const Body& body) {
#pragma unroll
  for (int i = 0; i < kLaneChannels; ++i) {
    if (const int c = static_cast<int>(threadIdx.x) % kLanes + i * kLanes; c < width) {
      body(i, c);
    }
  }
}

/// Launches a kernel for `count` pieces of work, `each` per block.
template <class... Parameters, class... Arguments>
void launch_recurrent(void (*kernel)(Parameters...), std::size_t count, std::size_t each,
                      cudaStream_t stream, const Arguments&... arguments) {
  constexpr std::size_t kMostBlocks = 2048;  // blocks loop over further work
  const auto blocks = static_cast<unsigned>(std::min((count + each - 1) / each, kMostBlocks));
  winnow::cuda::launch(kernel, dim3(blocks), kRecurrentThreads, 0, stream, false, arguments...);
}

}  // namespace winnow::ops::cuda
