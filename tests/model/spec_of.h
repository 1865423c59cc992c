// Descriptions of small models for tests, made as any other: from a config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/config.h"

namespace winnow::testing {

struct Sizes {
  int hidden = 32;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int intermediate = 48;
  int vocab = 64;
  int max_positions = 512;
};

/// A model of a family ("llama", ...) of these sizes; `more` are further keys of its config.json.
inline model::ModelSpec spec_of(const std::string& family, const Sizes& sizes,
                                const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", family},
                           {"hidden_size", sizes.hidden},
                           {"num_hidden_layers", sizes.layers},
                           {"num_attention_heads", sizes.heads},
                           {"num_key_value_heads", sizes.kv_heads},
                           {"head_dim", sizes.head_dim},
                           {"intermediate_size", sizes.intermediate},
                           {"vocab_size", sizes.vocab},
                           {"max_position_embeddings", sizes.max_positions},
                           {"rms_norm_eps", 1e-5}};
  config.update(more);
  return model::parse_spec(config.dump());
}

}  // namespace winnow::testing
