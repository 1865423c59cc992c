// A layer of experts with random weights, for tests.
#pragma once

#include <vector>

#include "ops/cuda/experts/experts_testing.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/owned_weight.h"

namespace winnow::ops::cuda::testing {

using ops::testing::OwnedWeight;

/// [residual_parts(cols), rows], of 16 columns each.
inline std::vector<float> square_sums(const std::vector<float>& x, std::size_t cols) {
  const std::size_t rows = x.size() / cols;
  std::vector<float> sums(static_cast<std::size_t>(residual_parts(static_cast<int>(cols))) * rows);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i % cols / 16 * rows + i / cols] += x[i] * x[i];
  }
  return sums;
}

/// The device format of a source format, and the tolerance of its results against the CPU's.
inline constexpr struct {
  WeightFormat source;
  DeviceWeightFormat format;
  double tolerance;
} kFormats[] = {{WeightFormat::bf16, DeviceWeightFormat::bf16, 1e-2},
                {WeightFormat::bf16, DeviceWeightFormat::fp8, 1e-1},
                {WeightFormat::int8, DeviceWeightFormat::int8, 1e-2},
                {WeightFormat::int4, DeviceWeightFormat::int4, 1e-2}};

/// A layer of experts, in the CPU's and in the device's format.
struct Layer {
  Layer(const Router& which, WeightFormat source, DeviceWeightFormat format,
        GatedActivation activated, bool scales, std::size_t width_of_each = 96)
      : router(which),
        inner(width_of_each),
        activation(activated),
        scales_input(scales),
        router_weight(WeightFormat::bf16, static_cast<std::size_t>(which.count), kWidth, 999) {
    std::vector<Weight> gate_up;
    std::vector<Weight> down;
    matrices.reserve(3 * static_cast<std::size_t>(router.count));
    for (std::size_t e = 0; e < static_cast<std::size_t>(router.count); ++e) {
      matrices.emplace_back(source, inner, kWidth, 3 * e);
      matrices.emplace_back(source, inner, kWidth, 3 * e + 1);
      matrices.emplace_back(source, kWidth, inner, 3 * e + 2);
      const auto part = [&](std::size_t i) { return matrices[3 * e + i].view(); };
      gate_up.insert(gate_up.end(), {part(0), part(1)});
      down.push_back(part(2));
    }
    const auto experts = static_cast<std::size_t>(router.count);
    gate_up_bias = draw(experts * 2 * inner, 5);
    down_bias = draw(experts * kWidth, 6);
    device_gate_up = DeviceWeight(gate_up, format);
    device_down = DeviceWeight(down, format);
  }

  static constexpr std::size_t kWidth = 256;
  Router router;
  std::size_t inner;
  GatedActivation activation;
  bool scales_input;
  OwnedWeight router_weight;
  std::vector<OwnedWeight> matrices;
  std::vector<float> gate_up_bias;
  std::vector<float> down_bias;
  DeviceWeight device_gate_up;
  DeviceWeight device_down;
};

/// Memory of an ExpertsNetwork.
struct NetworkMemory {
  bf16* products = nullptr;
  bf16* activated = nullptr;
};

inline ExpertsNetwork network_of(const Layer& layer,
                                 const winnow::cuda::DeviceBuffer<float>& gate_up_bias,
                                 const winnow::cuda::DeviceBuffer<float>& down_bias,
                                 const NetworkMemory& memory) {
  const int inner = static_cast<int>(layer.inner);
  return {.gate_up = {layer.device_gate_up.view(), gate_up_bias.data(), 2 * inner},
          .activation = layer.activation,
          .down = {layer.device_down.view(), down_bias.data(), Layer::kWidth},
          .weighs_input = layer.scales_input,
          .products = memory.products,
          .activated = memory.activated};
}

inline std::vector<float> on_cpu(const Layer& layer, std::vector<float>& x,
                                 std::vector<float> out) {
  std::vector<MlpWeights> experts;
  for (std::size_t e = 0; e < static_cast<std::size_t>(layer.router.count); ++e) {
    const float* bias = layer.gate_up_bias.data() + e * 2 * layer.inner;
    experts.push_back({.gate = &layer.matrices[3 * e].view(),
                       .up = &layer.matrices[3 * e + 1].view(),
                       .down = &layer.matrices[3 * e + 2].view(),
                       .gate_bias = bias,
                       .up_bias = bias + layer.inner,
                       .down_bias = layer.down_bias.data() + e * Layer::kWidth,
                       .activation = layer.activation});
  }
  Workspace workspace;
  Context context{.compute = DType::f32, .workspace = &workspace};
  ops::add_experts(context, layer.router, matrix(out, Layer::kWidth), matrix(x, Layer::kWidth),
                   {.router = &layer.router_weight.view(),
                    .experts = experts,
                    .scales_input = layer.scales_input});
  return out;
}

inline std::vector<float> router_logits(const Layer& layer, std::vector<float> x) {
  const auto count = static_cast<std::size_t>(layer.router.count);
  std::vector<float> logits(x.size() / Layer::kWidth * count);
  Workspace workspace;
  Context context{.compute = DType::f32, .workspace = &workspace};
  linear(context, matrix(logits, count), matrix(x, Layer::kWidth), layer.router_weight.view());
  return logits;
}

}  // namespace winnow::ops::cuda::testing
