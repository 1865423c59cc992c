// Directories of small heads of EAGLE-3, as they are published.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/safetensors.h"

namespace winnow::testing {

struct HeadSizes {
  int hidden = 32;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int intermediate = 48;
  int vocab = 64;
  int draft_vocab = 40;
  int target_hidden = 32;
};

/// A head in memory, which tests may change before they write it.
struct HeadFiles {
  struct Tensor {
    Shape shape;
    std::vector<float> values;
  };

  HeadSizes sizes;
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;
  std::vector<std::int64_t> offsets;  // d2t; empty: the file has none

  [[nodiscard]] const std::vector<float>& at(const std::string& name) const {
    return tensors.at(name).values;
  }

  void write(const std::filesystem::path& directory) const {
    std::ofstream(directory / "config.json") << config.dump();
    TensorMap map;
    for (const auto& [name, tensor] : tensors) {
      map[name] = {DType::f32, tensor.shape, as_bytes(tensor.values)};
    }
    if (!offsets.empty()) {
      map["d2t"] = {DType::i64, {static_cast<std::int64_t>(offsets.size())}, as_bytes(offsets)};
    }
    write_safetensors(directory / "model.safetensors", map);
  }

 private:
  template <class T>
  static const std::byte* as_bytes(const std::vector<T>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }
};

/// The offsets of a head that drafts about every other token.
inline std::vector<std::int64_t> spread_offsets(const HeadSizes& sizes) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i < sizes.draft_vocab; ++i) {
    offsets.push_back(i * sizes.vocab / sizes.draft_vocab - i);
  }
  return offsets;
}

/// A head with random weights that takes the states after these layers of its target.
inline HeadFiles random_head(const HeadSizes& sizes = {}, const std::vector<int>& after = {0, 1, 1},
                             std::uint64_t seed = 3) {
  HeadFiles head;
  head.sizes = sizes;
  head.config = {{"architectures", {"LlamaForCausalLMEagle3"}},
                 {"model_type", "llama"},
                 {"hidden_size", sizes.hidden},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", sizes.heads},
                 {"num_key_value_heads", sizes.kv_heads},
                 {"head_dim", sizes.head_dim},
                 {"intermediate_size", sizes.intermediate},
                 {"vocab_size", sizes.vocab},
                 {"draft_vocab_size", sizes.draft_vocab},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-5},
                 {"eagle_aux_hidden_state_layer_ids", after}};
  if (sizes.target_hidden != sizes.hidden) {
    head.config["target_hidden_size"] = sizes.target_hidden;
  }
  const auto add = [&](const std::string& name, const Shape& shape) {
    Random random(seed, head.tensors.size());
    const bool norm = name.find("norm") != std::string::npos;
    const auto spread = static_cast<float>(std::sqrt(3.0 / static_cast<double>(shape.back())));
    std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
    for (float& value : values) {
      const auto uniform = 2.0F * static_cast<float>(random.uniform()) - 1.0F;
      value = norm ? 1.0F + 0.3F * uniform : spread * uniform;
    }
    head.tensors[name] = {shape, std::move(values)};
  };
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t queries = std::int64_t{sizes.heads} * sizes.head_dim;
  const std::int64_t keys = std::int64_t{sizes.kv_heads} * sizes.head_dim;
  const auto taken = static_cast<std::int64_t>(after.size());
  add("fc.weight", {hidden, taken * sizes.target_hidden});
  add("embed_tokens.weight", {sizes.vocab, hidden});
  add("midlayer.input_layernorm.weight", {hidden});
  add("midlayer.hidden_norm.weight", {hidden});
  add("midlayer.self_attn.q_proj.weight", {queries, 2 * hidden});
  add("midlayer.self_attn.k_proj.weight", {keys, 2 * hidden});
  add("midlayer.self_attn.v_proj.weight", {keys, 2 * hidden});
  add("midlayer.self_attn.o_proj.weight", {hidden, queries});
  add("midlayer.post_attention_layernorm.weight", {hidden});
  add("midlayer.mlp.gate_proj.weight", {sizes.intermediate, hidden});
  add("midlayer.mlp.up_proj.weight", {sizes.intermediate, hidden});
  add("midlayer.mlp.down_proj.weight", {hidden, sizes.intermediate});
  add("norm.weight", {hidden});
  add("lm_head.weight", {sizes.draft_vocab, hidden});
  if (sizes.draft_vocab != sizes.vocab) {
    head.offsets = spread_offsets(sizes);
  }
  return head;
}

/// The same head in the format of "speculators".
inline HeadFiles as_speculators(HeadFiles head) {
  nlohmann::json layer = head.config;
  nlohmann::json config = {{"architectures", {"Eagle3Speculator"}},
                           {"speculators_model_type", "eagle3"}};
  for (const char* key :
       {"draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "target_hidden_size"}) {
    if (layer.contains(key)) {
      config[key] = layer[key];
      layer.erase(key);
    }
  }
  layer.erase("architectures");
  config["transformer_layer_config"] = layer;
  head.config = config;
  std::map<std::string, HeadFiles::Tensor> named;
  for (auto& [name, tensor] : head.tensors) {
    const std::string old = "midlayer.";
    named[name.starts_with(old) ? "layers.0." + name.substr(old.size()) : name] = tensor;
  }
  head.tensors = std::move(named);
  return head;
}

}  // namespace winnow::testing
