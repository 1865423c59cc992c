#include "train/cuda_memory/decoder.h"

#include "base/dtype.h"
#include "train/cuda_memory/activations.h"

namespace winnow::train::cuda {

std::size_t kept_streams(const model::ModelSpec& spec, Keep keep) {
  return keep == Keep::nothing ? 1 : static_cast<std::size_t>(spec.layer_count()) + 1;
}

std::size_t kept_layers(const model::ModelSpec& spec, Keep keep) {
  return keep == Keep::all ? static_cast<std::size_t>(spec.layer_count()) : 1;
}

std::size_t shared_entry_width(const model::ModelSpec& spec, int layer) {
  return static_cast<std::size_t>(spec.layer(layer).attention()->key_width());
}

std::size_t shared_bias_width(const model::ModelSpec& spec, int layer) {
  return spec.decides(layer) ? static_cast<std::size_t>(spec.layer(layer).attention()->kv_heads)
                             : 0;
}

SharedEntriesSizes::SharedEntriesSizes(const model::ModelSpec& spec, std::size_t tokens,
                                       bool has_gradients) {
  for (const int source : spec.shared_layers()) {
    entries += 2 * tokens * shared_entry_width(spec, source);
    biases += tokens * shared_bias_width(spec, source);
  }
  gradients = has_gradients ? entries + biases : 0;
}

std::size_t SharedEntriesSizes::bytes() const {
  return entries * sizeof(bf16) + (biases + gradients) * sizeof(float);
}

LayerInputsSizes::LayerInputsSizes(const model::ModelSpec& spec, std::size_t tokens,
                                   bool has_gradients)
    : inputs(tokens * static_cast<std::size_t>(spec.layer_embeddings_width())),
      gradients(has_gradients ? inputs : 0),
      embedded(spec.layer_embeddings ? tokens * static_cast<std::size_t>(spec.hidden) : 0) {}

std::size_t LayerInputsSizes::bytes() const {
  return (inputs + gradients) * (sizeof(bf16) + sizeof(float)) + embedded * sizeof(bf16);
}

std::size_t decoder_bytes(const model::ModelSpec& spec, std::size_t tokens, Keep keep) {
  const bool has_gradients = keep != Keep::nothing;
  return kept_streams(spec, keep) * tokens * static_cast<std::size_t>(spec.hidden) * sizeof(float) +
         kept_layers(spec, keep) * ActivationBuffers::bytes(spec, tokens) +
         SharedEntriesSizes(spec, tokens, has_gradients).bytes() +
         LayerInputsSizes(spec, tokens, has_gradients).bytes();
}

}  // namespace winnow::train::cuda
