// One decoder layer on a device, forward and backward: train/layer.h in bf16, with products in fp8
// on request.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "model/rope_tables.h"
#include "ops/cuda/training/training_decisions.h"
#include "train/cuda/activations.h"
#include "train/cuda/device_tensors.h"
#include "train/cuda/products.h"
#include "train/cuda/shared_entries.h"
#include "train/decisions.h"

namespace winnow::train::cuda {

/// A layer's slice of its second input besides the stream (model::LayerEmbeddings): rows
/// [T, width], `stride` apart, and the same for its gradient.
struct DeviceLayerInput {
  const bf16* input = nullptr;
  float* gradient = nullptr;
  std::size_t stride = 0;
};

/// What all layers of one pass share. Pointers are to device memory.
struct DevicePass {
  const model::ModelSpec* spec = nullptr;
  int tokens = 0;                           // T
  const std::int32_t* first_key = nullptr;  // [T]: of the document
  const std::int32_t* chunk_key = nullptr;  // [T]: of the chunk, for layers that attend within them
  const std::int32_t* positions = nullptr;  // [T]
  const model::RopeTables* ropes = nullptr;
  const float2* angles = nullptr;  // of each table [T, rotary channels / 2]
  DecisionPass::Mode mode = DecisionPass::Mode::off;
  float tau = 0.1F;
  int merge_span = 12;
  const FarDropout* far_dropout = nullptr;
  const float* channel_factor = nullptr;               // factor on a borrowed channel in attention
  const std::uint64_t* noise = nullptr;                // the pass's seed
  const ops::cuda::DecisionFactors* losses = nullptr;  // [compressing layers, decisions]
  unsigned long long* marked =
      nullptr;               // [compressing layers, decisions], added to; null: not counted
  int* first_bad = nullptr;  // PassSums::not_finite
  Products* linear = nullptr;
  const LayerScratch* scratch = nullptr;
  cudaStream_t stream = nullptr;

  int layer = 0;  // being computed
  /// In backward: the layer's forward has just run, and scratch still has its results.
  bool recomputed = false;
  /// For a layer whose entries later layers share, and for those layers; the first one's forward
  /// fills it. Null: no other layer reads the layer's entries.
  const DeviceEntries<bf16>* shared = nullptr;
  const DeviceEntries<float>* shared_gradients = nullptr;
  DeviceLayerInput embedding = {};

  [[nodiscard]] const model::LayerSpec& layer_spec() const { return spec->layer(layer); }
  [[nodiscard]] const model::AttentionSpec& attention() const { return *layer_spec().attention(); }
  [[nodiscard]] DecisionPass::Mode decision_mode() const { return mode; }
  /// The first key that the layer's queries see.
  [[nodiscard]] const std::int32_t* first_seen() const {
    return layer_spec().chunk() != 0 ? chunk_key : first_key;
  }
  [[nodiscard]] bool decides() const {
    return spec->decides(layer) && mode != DecisionPass::Mode::off;
  }
  [[nodiscard]] bool merges() const { return spec->dmc && decides(); }
  /// Decisions of the layers before this one.
  [[nodiscard]] std::size_t first_decision() const {
    return static_cast<std::size_t>(spec->compressing_before(layer)) * decision_count(*spec);
  }
};

/// output [T, hidden] from input [T, hidden], the residual stream before and after pass.layer;
/// output may be input. With a null output, only `activations` are computed.
void layer_forward(const DevicePass& pass, const DeviceLayerWeights& weights, const float* input,
                   const DeviceActivations& activations, float* output);

/// The gradient of the residual stream [T, hidden], and the same rounded to bf16 for products.
struct StreamGradient {
  float* exact = nullptr;
  bf16* rounded = nullptr;
};

/// Converts `gradient` from the layer's output to its input, and adds to `gradients`.
void layer_backward(const DevicePass& pass, const DeviceLayerWeights& weights, const float* input,
                    const DeviceActivations& activations, const DeviceLayerGradients& gradients,
                    const StreamGradient& gradient);

}  // namespace winnow::train::cuda
