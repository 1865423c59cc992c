// The rows of a mixer's projections in the order in which a device holds them: files have some of
// them head by head.
#pragma once

#include <span>
#include <vector>

#include "model/spec.h"
#include "model/weights.h"

namespace winnow::model::cuda {

/// Views of rows, which lie one below another.
struct MixerRows {
  std::vector<ops::Weight> qkv;          // queries, and what there is of keys and values
  std::vector<ops::Weight> output_gate;  // or none
  std::vector<ops::Weight> gates;        // of a recurrent mixer: rates, decays
  // Of attention, where it has biases:
  std::vector<std::span<const float>> qkv_bias;
  std::vector<std::span<const float>> output_gate_bias;
};
MixerRows mixer_rows(const ModelSpec& spec, int layer, const LayerWeights& weights);

}  // namespace winnow::model::cuda
