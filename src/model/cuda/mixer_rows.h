// The rows of a mixer's projections in the order of device memory: in files, the rows of some
// projections alternate head by head.
#pragma once

#include <span>
#include <vector>

#include "model/spec.h"
#include "model/weights.h"

namespace winnow::model::cuda {

/// Views of rows, to be stacked.
struct MixerRows {
  std::vector<ops::Weight> qkv;          // queries, and keys and values if the layer has them
  std::vector<ops::Weight> output_gate;  // empty if it has none
  std::vector<ops::Weight> gates;        // rates, decays of a recurrent mixer
  // Biases of attention, if it has them:
  std::vector<std::span<const float>> qkv_bias;
  std::vector<std::span<const float>> output_gate_bias;
};
MixerRows mixer_rows(const ModelSpec& spec, int layer, const LayerWeights& weights);

}  // namespace winnow::model::cuda
