// The memory that a model's stack of layers takes on a device.
#pragma once

#include "model/config.h"
#include "train/decoder.h"

namespace winnow::train::cuda {

/// Residual streams that DeviceDecoder keeps, and layers whose activations it keeps.
std::size_t kept_streams(const model::ModelSpec& spec, Keep keep);
std::size_t kept_layers(const model::ModelSpec& spec, Keep keep);

/// Elements of DeviceSharedEntries for `tokens` tokens.
struct SharedEntriesSizes {
  SharedEntriesSizes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  [[nodiscard]] std::size_t bytes() const;

  std::size_t entries = 0;  // keys and values of all layers that store shared ones
  std::size_t biases = 0;
  std::size_t gradients = 0;  // of both
};
/// Columns of such a layer's keys (values have as many), and of its biases.
std::size_t shared_entry_width(const model::ModelSpec& spec, int layer);
std::size_t shared_bias_width(const model::ModelSpec& spec, int layer);

/// Elements of DeviceLayerInputs for `tokens` tokens; 0 without such embeddings.
struct LayerInputsSizes {
  LayerInputsSizes(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);
  [[nodiscard]] std::size_t bytes() const;

  std::size_t inputs = 0;     // [T, width of all]
  std::size_t gradients = 0;  // the same; 0: there are none
  std::size_t embedded = 0;   // [T, hidden]
};

/// Bytes of DeviceDecoder.
std::size_t decoder_bytes(const model::ModelSpec& spec, std::size_t tokens, Keep keep);

}  // namespace winnow::train::cuda
