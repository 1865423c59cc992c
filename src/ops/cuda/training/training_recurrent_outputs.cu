#include "ops/cuda/training/training_recurrent.cuh"

namespace winnow::ops::cuda {
namespace {

// A head's output for a token: its position, and its inverse root mean square.
struct OutputHead {
  RecurrentHead head;
  std::size_t first;  // in [T, value_width]
  const bf16* gates;

  __device__ OutputHead(const TrainingRecurrent& layer, int row, int index)
      : head(layer, 2 * layer.heads.key_heads + index),
        first(std::size_t(row) * values_of(layer.heads) + index * layer.heads.value_dim),
        gates(layer.projected + std::size_t(row) * projected_width(layer.heads) +
              head.gates(layer)) {}
};

__device__ float inverse_root(const TrainingRecurrent& layer, float squares) {
  return rsqrtf(lane_sum(squares) / static_cast<float>(layer.heads.value_dim) + layer.eps);
}

__global__ void __launch_bounds__(kRecurrentThreads)
    outputs_kernel(const __grid_constant__ TrainingRecurrent layer, bf16* out,
                   const bf16* recalled) {
  for_each_head(layer.rows, layer.heads.value_heads, [&](int row, int index) {
    const OutputHead own(layer, row, index);
    float x[kLaneChannels] = {};
    float squares = 0.0F;
    for_lane_channels(own.head.width, [&](int i, int c) {
      x[i] = to_float(recalled[own.first + c]);
      squares += x[i] * x[i];
    });
    const float factor = inverse_root(layer, squares);
    for_lane_channels(own.head.width, [&](int i, int c) {
      const float gate = activation_at<Activation::silu>(to_float(own.gates[c])).value;
      out[own.first + c] = to_bf16(gate * factor * x[i] * layer.norm[c]);
    });
  });
}

__global__ void __launch_bounds__(kRecurrentThreads)
    outputs_backward_kernel(const __grid_constant__ TrainingRecurrent layer, float* drecalled,
                            const bf16* dout, const bf16* recalled,
                            const __grid_constant__ TrainingRecurrentGradients gradients) {
  float dnorm[kLaneChannels] = {};
  for_each_head(layer.rows, layer.heads.value_heads, [&](int row, int index) {
    const OutputHead own(layer, row, index);
    float x[kLaneChannels] = {};
    float dnormed[kLaneChannels] = {};
    float squares = 0.0F;
    for_lane_channels(own.head.width, [&](int i, int c) {
      x[i] = to_float(recalled[own.first + c]);
      squares += x[i] * x[i];
    });
    const float factor = inverse_root(layer, squares);
    bf16* dgates = gradients.projected + (own.gates - layer.projected);
    float product = 0.0F;
    for_lane_channels(own.head.width, [&](int i, int c) {
      const Curve gate = activation_at<Activation::silu>(to_float(own.gates[c]));
      const float gradient = to_float(dout[own.first + c]);
      const float weight = layer.norm[c];
      dgates[c] = to_bf16(gradient * gate.slope * factor * x[i] * weight);
      dnorm[i] += gradient * gate.value * factor * x[i];
      dnormed[i] = gradient * gate.value * weight;
      product += dnormed[i] * x[i];
    });
    const float along =
        lane_sum(product) * factor * factor / static_cast<float>(layer.heads.value_dim);
    for_lane_channels(own.head.width, [&](int i, int c) {
      drecalled[own.first + c] = factor * (dnormed[i] - along * x[i]);
    });
  });
  if (gradients.norm != nullptr) {
    for_lane_channels(layer.heads.value_dim,
                      [&](int i, int c) { atomicAdd(gradients.norm + c, dnorm[i]); });
  }
}

// body(index in [rows, heads * head_dim], index of its gate in `projected`, the gate's sigmoid).
template <class Body>
__device__ void for_each_gate(const TrainingOutputGates& gates, const Body& body) {
  const int width = gates.heads * gates.head_dim;
  const std::size_t count = static_cast<std::size_t>(gates.rows) * width;
  for (std::size_t at = std::size_t{blockIdx.x} * kRecurrentThreads + threadIdx.x; at < count;
       at += std::size_t{gridDim.x} * kRecurrentThreads) {
    const int column = static_cast<int>(at % width);
    const int gate =
        column / gates.head_dim * 2 * gates.head_dim + gates.head_dim + column % gates.head_dim;
    const std::size_t from = at / width * gates.stride + gate;
    const float bias = gates.bias != nullptr ? gates.bias[gate] : 0.0F;
    body(at, from, sigmoid(to_float(gates.projected[from]) + bias));
  }
}

__global__ void __launch_bounds__(kRecurrentThreads)
    gate_kernel(const __grid_constant__ TrainingOutputGates gates, bf16* out,
                const bf16* attended) {
  for_each_gate(gates, [&](std::size_t at, std::size_t, float gate) {
    out[at] = to_bf16(to_float(attended[at]) * gate);
  });
}

__global__ void __launch_bounds__(kRecurrentThreads)
    gate_backward_kernel(const __grid_constant__ TrainingOutputGates gates, bf16* gradient,
                         bf16* dprojected, const bf16* attended) {
  for_each_gate(gates, [&](std::size_t at, std::size_t from, float gate) {
    const float dout = to_float(gradient[at]);
    dprojected[from] = to_bf16(dout * to_float(attended[at]) * gate * (1.0F - gate));
    gradient[at] = to_bf16(dout * gate);
  });
}

std::size_t value_heads(const TrainingRecurrent& layer) {
  return static_cast<std::size_t>(layer.rows) * static_cast<std::size_t>(layer.heads.value_heads);
}

std::size_t count_of(const TrainingOutputGates& gates) {
  return static_cast<std::size_t>(gates.rows) *
         static_cast<std::size_t>(gates.heads * gates.head_dim);
}

}  // namespace

void recurrent_outputs(const TrainingRecurrent& layer, bf16* out, const bf16* recalled,
                       cudaStream_t stream) {
  launch_recurrent(outputs_kernel, value_heads(layer), kRecurrentWarps, stream, layer, out,
                   recalled);
}

void recurrent_outputs_backward(const TrainingRecurrent& layer, float* drecalled, const bf16* dout,
                                const bf16* recalled, const TrainingRecurrentGradients& gradients,
                                cudaStream_t stream) {
  launch_recurrent(outputs_backward_kernel, value_heads(layer), kRecurrentWarps, stream, layer,
                   drecalled, dout, recalled, gradients);
}

void gate_attended(const TrainingOutputGates& gates, bf16* out, const bf16* attended,
                   cudaStream_t stream) {
  launch_recurrent(gate_kernel, count_of(gates), kRecurrentThreads, stream, gates, out, attended);
}

void gate_attended_backward(const TrainingOutputGates& gates, bf16* gradient, bf16* dprojected,
                            const bf16* attended, cudaStream_t stream) {
  launch_recurrent(gate_backward_kernel, count_of(gates), kRecurrentThreads, stream, gates,
                   gradient, dprojected, attended);
}

}  // namespace winnow::ops::cuda
