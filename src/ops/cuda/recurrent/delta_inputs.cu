// A block processes a head of queries, keys or values and a few rows of a sequence, a warp per row.
#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/cuda/recurrent/delta_inputs.h"
#include "ops/cuda/recurrent/four.cuh"
#include "ops/cuda/recurrent/recurrent_gates.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kInputWarps = 4;
// Per block: the first block of a sequence has all rows that depend on the state.
constexpr int kInputRows = kMostTaps - 1;
constexpr int kInputFours = kMostRecurrentDim / (4 * kLanes);  // per lane

// A head among those of queries, keys and values, and its channels.
struct InputHead {
  int first;  // first channel among the projected ones
  int to;     // and among the mixed ones
  int width;
  float length;  // the length to normalise vectors to; 0: unchanged
  int value_head;

  __device__ InputHead(const DeltaRuleShape& heads, int index) {
    const int keys = 2 * heads.key_heads;
    const bool is_value = index >= keys;
    value_head = is_value ? index - keys : -1;
    width = is_value ? heads.value_dim : heads.key_dim;
    to = is_value ? 2 * keys_of(heads) + value_head * width : index * width;
    if (heads.corrects) {
      first = to;
      length = length_of(heads, index);
      return;
    }
    const bool is_query = index < heads.key_heads;
    const int key = values_of(heads) + index % heads.key_heads * width;
    first = is_value ? value_head * width : is_query ? key + keys_of(heads) : key;
    length = 0.0F;
  }
};

// Row `t` of a text from channel `first` on. Rows with negative t are the `kept` rows before it,
// whose inputs are in `tail`.
struct TextRows {
  const float* inputs;
  const float* tail;
  std::size_t channels;
  int kept;

  __device__ const float* row(int t) const {
    return t >= 0 ? inputs + t * channels : tail + (kept + t) * channels;
  }
};

__device__ float4 silu(const float4& x) {
  return {x.x * sigmoid(x.x), x.y * sigmoid(x.y), x.z * sigmoid(x.z), x.w * sigmoid(x.w)};
}

// By a warp.
__device__ void take_row(const InputHead& head, const DeltaInputs& inputs, const TextRows& text,
                         int t, float* out) {
  const int lane = threadIdx.x % kLanes;
  float4 x[kInputFours];
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kInputFours; ++i) {
    x[i] = {};
    if (const int at = 4 * (lane + i * kLanes); at < head.width) {
      const int channel = head.first + at;
      if (inputs.conv_bias != nullptr) {
        x[i] = load_four(inputs.conv_bias + channel);
      }
      for (int tap = 0; tap < inputs.tap_count; ++tap) {
        const float4 source = load_four(text.row(t + tap - text.kept) + channel);
        const float4 weight = load_four(inputs.taps + tap * text.channels + channel);
        x[i] = {x[i].x + weight.x * source.x, x[i].y + weight.y * source.y,
                x[i].z + weight.z * source.z, x[i].w + weight.w * source.w};
      }
      x[i] = silu(x[i]);
      squares += dot(x[i], x[i]);
    }
  }
  const float factor = length_factor(head.length, lane_sum(squares));
#pragma unroll
  for (int i = 0; i < kInputFours; ++i) {
    if (const int at = 4 * (lane + i * kLanes); at < head.width) {
      store_four(out + head.to + at, x[i] * factor);
    }
  }
}

// Like the CPU's delta_gates() and state_space_gates().
__device__ void take_gates(const DeltaInputs& inputs, const DeltaRuleShape& heads, int head,
                           float* gates) {
  float& rate = gates[head];
  float& decay = gates[heads.value_heads + head];
  const float slowed =
      fminf(fmaxf(soft_plus(decay + inputs.decay_bias[head]), inputs.limits.lowest),
            inputs.limits.highest);
  decay = expf(-expf(inputs.log_decay[head]) * slowed);
  rate = heads.corrects ? sigmoid(rate) : slowed;
}

// The last `kept` inputs of a text of `count` rows, by a thread per channel.
__device__ void renew_tail(const InputHead& head, const TextRows& text, int count, float* tail) {
  for (int i = threadIdx.x; i < head.width; i += kInputWarps * kLanes) {
    const int channel = head.first + i;
    for (int row = 0; row < text.kept; ++row) {  // reads no row that it has already overwritten
      tail[row * text.channels + channel] = text.row(count - text.kept + row)[channel];
    }
  }
}

__global__ void __launch_bounds__(kInputWarps* kLanes)
    delta_inputs_kernel(DeltaRuleShape heads, DeltaInputs inputs, RecurrentRows rows) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();  // it reads matrices, which this kernel does not write
  const int slot = rows.slots[blockIdx.z];
  if (slot < 0) {
    return;
  }
  const auto [first, count] = rows.range(blockIdx.z);
  const int begin = blockIdx.y * kInputRows;
  const int end = min(count, begin + kInputRows);
  if (begin >= end) {
    return;
  }
  const InputHead head(heads, blockIdx.x);
  const std::size_t channels = channels_of(heads);
  float* tail = rows.state(slot) + heads.value_heads * matrix_of(heads);
  const TextRows text{inputs.projected + first * channels, tail, channels, inputs.tap_count - 1};
  for (int t = begin + threadIdx.x / kLanes; t < end; t += kInputWarps) {
    const std::size_t row = first + t;
    take_row(head, inputs, text, t, inputs.mixed + row * channels);
    if (head.value_head >= 0 && threadIdx.x % kLanes == 0) {
      take_gates(inputs, heads, head.value_head, inputs.gates + row * inputs.gate_stride);
    }
  }
  __syncthreads();
  if (begin == 0) {
    renew_tail(head, text, count, tail);
  }
}

}  // namespace

void delta_inputs(const DeltaRuleShape& heads, const DeltaInputs& inputs, const RecurrentRows& rows,
                  cudaStream_t stream) {
  check_recurrent(heads, inputs.tap_count);
  if (rows.sequences > 0) {
    const dim3 grid(2 * heads.key_heads + heads.value_heads,
                    (rows.longest + kInputRows - 1) / kInputRows, rows.sequences);
    winnow::cuda::launch(delta_inputs_kernel, grid, kInputWarps * kLanes, 0, stream, true, heads,
                         inputs, rows);
  }
}

}  // namespace winnow::ops::cuda
