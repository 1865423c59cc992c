// The walk over a model's layers, of decode steps and of prompts.
#pragma once

#include "model/cuda/device_model.h"
#include "model/cuda/linear_path.h"

namespace winnow::model::cuda {

/// What a layer leaves to its neighbours.
struct LayerMemory {
  QkvMemory qkv;             // [rows, qkv_width]
  bf16* attended = nullptr;  // [rows, mixer_width]: what mixers give
};

/// From the embedded rows to the mixer of the last layer: what each layer's mixer takes is
/// projected; attend(layer, QkvRows) appends it to the cache and leaves the attention in
/// memory.attended, or the path takes the recurrent mixer of `sequences`; the rest of the layer
/// follows. What is behind the last mixer is the caller's, because not all rows go on. `overlap`:
/// see LinearPath::project().
template <class Attend>
void walk_layers(LinearPath& linear, const DeviceModel& model, const LayerMemory& memory,
                 const ops::cuda::RecurrentRows& sequences, int rows, bool overlap,
                 cudaStream_t stream, const Attend& attend) {
  const auto mix = [&](int layer, const kvcache::cuda::QkvRows& qkv) {
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
