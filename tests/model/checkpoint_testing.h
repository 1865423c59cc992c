// Small model directories for tests of src/model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/checkpoint_testing.h"
#include "model/checkpoint.h"

namespace winnow::model {

/// All tensors that `config` needs, filled with noise.
inline OwnedTensors tensors_of(const ModelSpec& config, std::uint64_t seed = 1) {
  OwnedTensors tensors;
  for (const auto& [name, shape] : expected_tensors(config)) {
    tensors.add(name, config.dtype, shape, seed);
  }
  return tensors;
}

/// The smallest config.json: the keys without defaults.
inline nlohmann::json tiny_config(const std::string& architecture = "LlamaForCausalLM") {
  return {{"architectures", {architecture}}, {"hidden_size", 16}, {"num_hidden_layers", 2},
          {"num_attention_heads", 4},        {"head_dim", 4},     {"num_key_value_heads", 2},
          {"intermediate_size", 24},         {"vocab_size", 32},  {"max_position_embeddings", 64},
          {"torch_dtype", "bfloat16"}};
}

inline ModelSpec parse(const nlohmann::json& config) {
  return parse_spec(ConfigTexts{"dir", config.dump(), {}, {}});
}

/// tiny_config with `changes` (an object, or null) merged in; a null value removes a key.
inline ModelSpec parse_with(const nlohmann::json& changes,
                            const std::string& architecture = "LlamaForCausalLM") {
  nlohmann::json config = tiny_config(architecture);
  if (!changes.is_null()) {
    config.merge_patch(changes);
  }
  return parse(config);
}

}  // namespace winnow::model
