// The walk over a model's layers, of decode steps and of prompts.
#pragma once

#include "model/cuda/linear_path.h"

namespace winnow::model::cuda {

/// What a layer leaves to its neighbours.
struct LayerMemory {
  QkvMemory qkv;             // [rows, qkv_width]
  bf16* attended = nullptr;  // [rows, query_width]
};

/// From the embedded rows to the attention of the last layer: each layer's q, k and v are
/// projected; attend(layer, QkvRows) appends them to the cache and leaves the attention in
/// memory.attended; the rest of the layer follows. What is behind the last attention is the
/// caller's, because not all rows go on. `overlap`: see LinearPath::project().
template <class Attend>
void walk_layers(LinearPath& linear, int layers, const LayerMemory& memory, int rows, bool overlap,
                 cudaStream_t stream, const Attend& attend) {
  kvcache::cuda::QkvRows qkv = linear.project(0, memory.qkv, rows, overlap, stream);
  attend(0, qkv);
  for (int layer = 1; layer < layers; ++layer) {
    qkv = linear.next_layer(layer - 1, memory.attended, memory.qkv, rows, stream);
    attend(layer, qkv);
  }
}

}  // namespace winnow::model::cuda
