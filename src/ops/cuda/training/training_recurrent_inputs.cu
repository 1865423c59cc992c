#include "ops/cuda/recurrent/recurrent_gates.cuh"
#include "ops/cuda/training/training_recurrent.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kTapTokens = 256;    // per block that sums gradients of taps
constexpr int kGateTokens = 1024;  // the same for gates

// The convolution's result in a channel of a head.
__device__ float convolved(const TrainingRecurrent& layer, const RecurrentHead& head, int row,
                           int c) {
  const int width = projected_width(layer.heads);
  const float* taps = layer.taps + std::size_t(head.channel + c) * layer.tap_count;
  float sum = 0.0F;
  for (int tap = 0; tap < layer.tap_count; ++tap) {
    const int from = row + tap - (layer.tap_count - 1);
    if (from >= layer.first_key[row]) {
      sum += taps[tap] * to_float(layer.projected[std::size_t(from) * width + head.column + c]);
    }
  }
  return sum;
}

__device__ void take_gates(const TrainingRecurrent& layer, int row, int head, float* rates,
                           float* log_decays) {
  const GateColumns columns(layer, head);
  const float* logits = layer.logits + std::size_t(row) * layer.logit_stride;
  const std::size_t to = std::size_t(row) * layer.heads.value_heads + head;
  rates[to] = sigmoid(logits[columns.rate]);
  log_decays[to] =
      -expf(layer.log_decay[head]) * soft_plus(logits[columns.decay] + layer.decay_bias[head]);
}

__global__ void __launch_bounds__(kRecurrentThreads)
    inputs_kernel(const __grid_constant__ TrainingRecurrent layer, float* mixed, float* rates,
                  float* log_decays) {
  const int heads = 2 * layer.heads.key_heads + layer.heads.value_heads;
  for_each_head(layer.rows, heads, [&](int row, int index) {
    const RecurrentHead head(layer, index);
    float x[kLaneChannels] = {};
    float squares = 0.0F;
    for_lane_channels(head.width, [&](int i, int c) {
      x[i] = activation_at<Activation::silu>(convolved(layer, head, row, c)).value;
      squares += x[i] * x[i];
    });
    const float factor = length_factor(length_of(layer.heads, index), lane_sum(squares));
    float* to = mixed + std::size_t(row) * channels_of(layer.heads) + head.channel;
    for_lane_channels(head.width, [&](int i, int c) { to[c] = factor * x[i]; });
    if (head.value_head >= 0 && threadIdx.x % kLanes == 0) {
      take_gates(layer, row, head.value_head, rates, log_decays);
    }
  });
}

// The gradient of a channel of the rule's operands: for queries and keys, summed over the value
// heads that read them.
__device__ float gradient_of(const TrainingRecurrent& layer, const TrainingDeltaGradients& d,
                             const RecurrentHead& head, int row, int c) {
  const DeltaRuleShape& heads = layer.heads;
  if (head.value_head >= 0) {
    return d.values[std::size_t(row) * values_of(heads) + head.value_head * head.width + c];
  }
  const float* from =
      (head.is_query ? d.queries : d.keys) +
      (std::size_t(row) * heads.value_heads + head.key_head * group_of(heads)) * head.width;
  float sum = 0.0F;
  for (int i = 0; i < group_of(heads); ++i) {
    sum += from[i * head.width + c];
  }
  return sum;
}

// Backward to the convolution's results.
__global__ void __launch_bounds__(kRecurrentThreads)
    through_heads_kernel(const __grid_constant__ TrainingRecurrent layer,
                         const __grid_constant__ TrainingDeltaGradients d, float* dconvolved) {
  const int heads = 2 * layer.heads.key_heads + layer.heads.value_heads;
  for_each_head(layer.rows, heads, [&](int row, int index) {
    const RecurrentHead head(layer, index);
    Curve curves[kLaneChannels] = {};
    float gradients[kLaneChannels] = {};
    float squares = 0.0F;
    float product = 0.0F;
    for_lane_channels(head.width, [&](int i, int c) {
      curves[i] = activation_at<Activation::silu>(convolved(layer, head, row, c));
      gradients[i] = gradient_of(layer, d, head, row, c);
      squares += curves[i].value * curves[i].value;
      product += curves[i].value * gradients[i];
    });
    const float length = length_of(layer.heads, index);
    squares = lane_sum(squares);
    product = lane_sum(product);
    const float factor = length_factor(length, squares);
    const float along = length > 0.0F ? product / (squares + kTinySquares) : 0.0F;
    float* to = dconvolved + std::size_t(row) * channels_of(layer.heads) + head.channel;
    for_lane_channels(head.width, [&](int i, int c) {
      to[c] = factor * (gradients[i] - along * curves[i].value) * curves[i].slope;
    });
  });
}

// The column of the projection of a convolved channel.
__device__ int column_of(const TrainingRecurrent& layer, int channel) {
  const DeltaRuleShape& heads = layer.heads;
  const int keys = 2 * keys_of(heads);
  const bool is_value = channel >= keys;
  const int dim = is_value ? heads.value_dim : heads.key_dim;
  const int within = is_value ? channel - keys : channel;
  const RecurrentHead head(layer, within / dim + (is_value ? 2 * heads.key_heads : 0));
  return head.column + within % dim;
}

// Backward from the convolution's results to its inputs.
__global__ void __launch_bounds__(kRecurrentThreads)
    through_taps_kernel(const __grid_constant__ TrainingRecurrent layer, const float* dconvolved,
                        bf16* dprojected) {
  const int channels = channels_of(layer.heads);
  const std::size_t count = static_cast<std::size_t>(layer.rows) * channels;
  for (std::size_t at = std::size_t{blockIdx.x} * kRecurrentThreads + threadIdx.x; at < count;
       at += std::size_t{gridDim.x} * kRecurrentThreads) {
    const int row = static_cast<int>(at / channels);
    const int channel = static_cast<int>(at % channels);
    const float* taps = layer.taps + std::size_t(channel) * layer.tap_count;
    float sum = 0.0F;
    for (int tap = 0; tap < layer.tap_count; ++tap) {
      const int to = row + layer.tap_count - 1 - tap;
      if (to < layer.rows && layer.first_key[to] <= row) {
        sum += taps[tap] * dconvolved[std::size_t(to) * channels + channel];
      }
    }
    dprojected[std::size_t(row) * projected_width(layer.heads) + column_of(layer, channel)] =
        to_bf16(sum);
  }
}

// A thread has a channel of some tokens.
__global__ void __launch_bounds__(kRecurrentThreads)
    tap_gradients_kernel(const __grid_constant__ TrainingRecurrent layer, const float* dconvolved,
                         float* dtaps) {
  const int channels = channels_of(layer.heads);
  const int channel = static_cast<int>(blockIdx.x * kRecurrentThreads + threadIdx.x);
  if (channel >= channels) {
    return;
  }
  const int column = column_of(layer, channel);
  const int width = projected_width(layer.heads);
  const int begin = static_cast<int>(blockIdx.y) * kTapTokens;
  const int end = begin + kTapTokens < layer.rows ? begin + kTapTokens : layer.rows;
  for (int tap = 0; tap < layer.tap_count; ++tap) {
    float sum = 0.0F;
    for (int row = begin; row < end; ++row) {
      const int from = row + tap - (layer.tap_count - 1);
      if (from >= layer.first_key[row]) {
        sum += dconvolved[std::size_t(row) * channels + channel] *
               to_float(layer.projected[std::size_t(from) * width + column]);
      }
    }
    atomicAdd(dtaps + std::size_t(channel) * layer.tap_count + tap, sum);
  }
}

// A block has a head of some tokens.
__global__ void __launch_bounds__(kRecurrentThreads)
    gate_gradients_kernel(const __grid_constant__ TrainingRecurrent layer,
                          const __grid_constant__ TrainingDeltaGradients d,
                          const __grid_constant__ TrainingRecurrentGradients gradients) {
  const int head = blockIdx.x;
  const int begin = static_cast<int>(blockIdx.y) * kGateTokens;
  const int end = begin + kGateTokens < layer.rows ? begin + kGateTokens : layer.rows;
  const GateColumns columns(layer, head);
  const float slope = -expf(layer.log_decay[head]);
  float along = 0.0F;
  float bias = 0.0F;
  for (int row = begin + static_cast<int>(threadIdx.x); row < end; row += kRecurrentThreads) {
    const std::size_t first = std::size_t(row) * layer.logit_stride;
    const std::size_t from = std::size_t(row) * layer.heads.value_heads + head;
    const float rate = sigmoid(layer.logits[first + columns.rate]);
    const float x = layer.logits[first + columns.decay] + layer.decay_bias[head];
    const float dlog = d.log_decays[from];
    const float dx = dlog * slope * sigmoid(x);
    along += dlog * slope * soft_plus(x);
    bias += dx;
    gradients.logits[first + columns.rate] = to_bf16(d.rates[from] * rate * (1.0F - rate));
    gradients.logits[first + columns.decay] = to_bf16(dx);
  }
  along = lane_sum(along);
  bias = lane_sum(bias);
  if (threadIdx.x % kLanes == 0) {
    if (gradients.log_decay != nullptr) {
      atomicAdd(gradients.log_decay + head, along);
    }
    if (gradients.decay_bias != nullptr) {
      atomicAdd(gradients.decay_bias + head, bias);
    }
  }
}

unsigned parts_of(int count, int each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace

void recurrent_inputs(const TrainingRecurrent& layer, float* mixed, float* rates, float* log_decays,
                      cudaStream_t stream) {
  check_recurrent(layer.heads, layer.tap_count);
  const int heads = 2 * layer.heads.key_heads + layer.heads.value_heads;
  launch_recurrent(inputs_kernel, static_cast<std::size_t>(layer.rows) * heads, kRecurrentWarps,
                   stream, layer, mixed, rates, log_decays);
}

void recurrent_inputs_backward(const TrainingRecurrent& layer,
                               const TrainingDeltaGradients& of_inputs, float* dconvolved,
                               const TrainingRecurrentGradients& gradients, cudaStream_t stream) {
  const int heads = 2 * layer.heads.key_heads + layer.heads.value_heads;
  const int channels = channels_of(layer.heads);
  const auto rows = static_cast<std::size_t>(layer.rows);
  launch_recurrent(through_heads_kernel, rows * heads, kRecurrentWarps, stream, layer, of_inputs,
                   dconvolved);
  launch_recurrent(through_taps_kernel, rows * channels, kRecurrentThreads, stream, layer,
                   dconvolved, gradients.projected);
  if (gradients.taps != nullptr) {
    winnow::cuda::launch(
        tap_gradients_kernel,
        dim3(parts_of(channels, kRecurrentThreads), parts_of(layer.rows, kTapTokens)),
        kRecurrentThreads, 0, stream, false, layer, dconvolved, gradients.taps);
  }
  winnow::cuda::launch(
      gate_gradients_kernel,
      dim3(static_cast<unsigned>(layer.heads.value_heads), parts_of(layer.rows, kGateTokens)),
      kRecurrentThreads, 0, stream, false, layer, of_inputs, gradients);
}

}  // namespace winnow::ops::cuda
