// The loop over a model's layers, for decode steps and prompts.
#pragma once

#include "model/cuda/device_model.h"
#include "model/cuda/linear_path.h"
#include "model/cuda/stream_rows.h"

namespace winnow::model::cuda {

/// Buffers between the parts of a layer.
struct LayerMemory {
  QkvMemory qkv;             // [rows, qkv_width]
  bf16* attended = nullptr;  // [rows, mixer_width]: outputs of mixers
};

/// Runs the model from the embedded rows to the mixer of the last layer. For each layer it projects
/// the mixer's inputs; then attend(layer, QkvRows) appends to the cache and writes the attention
/// output to memory.attended, or the path runs the recurrent mixer of `sequences`; then the rest of
/// the layer follows. The caller runs the rest of the last layer, because it may drop rows first.
/// `states` keep the stream before layers. `overlap`: see LinearPath::project().
template <class Attend>
void walk_layers(LinearPath& linear, const DeviceModel& model, const LayerMemory& memory,
                 const ops::cuda::RecurrentRows& sequences, const StreamRows& states, int rows,
                 bool overlap, cudaStream_t stream, const Attend& attend) {
  const auto mix = [&](int layer, const kvcache::cuda::QkvRows& qkv) {
    states.keep(layer, linear.hidden(), rows, stream);
    if (model.recurrent(layer) != nullptr) {
      linear.recall(layer, sequences, memory.attended, rows, stream);
    } else {
      attend(layer, qkv);
      linear.gate(layer, memory.attended, rows, stream);
    }
  };
  mix(0, linear.project(0, memory.qkv, rows, overlap, stream));
  for (int layer = 1; layer < model.layers(); ++layer) {
    mix(layer, linear.next_layer(layer - 1, memory.attended, memory.qkv, rows, stream));
  }
}

}  // namespace winnow::model::cuda
