// Directories of small models with an MTP layer, as they are published.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "model/checkpoint.h"
#include "model/head_files.h"
#include "model/spec_of.h"

namespace winnow::testing {

using NamedTensors = std::map<std::string, HeadFiles::Tensor>;

/// What a family's files call the parts of an MTP layer, in models of two layers.
struct MtpNames {
  std::string fusion;
  std::string embedding_norm;
  std::string stream_norm;
  std::string layer;  // the prefix of what any layer has
  std::string norm;   // "": it has none
};

/// A family with MTP layers, and what differs.
struct MtpFamily {
  const char* family;
  nlohmann::json keys;   // of config.json, for models of two layers
  nlohmann::json layer;  // what else to say for a model of one layer like the MTP layer
  MtpNames names;
  bool normed = true;
  bool stream_first = false;
};

inline nlohmann::json merged(nlohmann::json keys, const nlohmann::json& more) {
  keys.update(more);
  return keys;
}

inline std::vector<MtpFamily> mtp_families() {
  const MtpNames qwen{"mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight",
                      "mtp.pre_fc_norm_hidden.weight", "mtp.layers.0.", "mtp.norm.weight"};
  const MtpNames deepseek{"model.layers.2.eh_proj.weight", "model.layers.2.enorm.weight",
                          "model.layers.2.hnorm.weight", "model.layers.2.",
                          "model.layers.2.shared_head.norm.weight"};
  const nlohmann::json no_recurrent = {{"full_attention_interval", 1}};
  const nlohmann::json experts = {{"num_experts", 4},
                                  {"num_experts_per_tok", 2},
                                  {"moe_intermediate_size", 12},
                                  {"shared_expert_intermediate_size", 12}};
  const nlohmann::json shared = {{"n_routed_experts", 4},       {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 12}, {"n_shared_experts", 1},
                                 {"first_k_dense_replace", 1},  {"num_nextn_predict_layers", 1}};
  const nlohmann::json latent = merged(shared, {{"kv_lora_rank", 16},
                                                {"q_lora_rank", 12},
                                                {"qk_rope_head_dim", 8},
                                                {"qk_nope_head_dim", 6},
                                                {"v_head_dim", 10},
                                                {"n_group", 1},
                                                {"topk_group", 1}});
  const nlohmann::json sparse = {{"first_k_dense_replace", 0}};
  return {
      {"qwen3_next", merged(hybrid_keys(), experts), no_recurrent, qwen},
      {"qwen3_5_text", hybrid_keys(), no_recurrent, qwen},
      {"qwen3_5_moe_text", merged(hybrid_keys(), experts), no_recurrent, qwen},
      {"glm4_moe", merged(shared, {{"use_qk_norm", true}}), sparse, deepseek},
      {"deepseek_v3", latent, sparse, deepseek},
      {"glm4_moe_lite", latent, sparse, deepseek},
      {"qwen2",  // MiMo
       {{"attention_bias", true}},
       nlohmann::json::object(),
       {"model.mtp_layers.0.input_proj.weight", "model.mtp_layers.0.token_layernorm.weight",
        "model.mtp_layers.0.hidden_layernorm.weight", "model.mtp_layers.0.",
        "model.mtp_layers.0.final_layernorm.weight"},
       /*normed=*/false,
       /*stream_first=*/true},
      {"ernie4_5_moe",
       {{"moe_num_experts", 4},
        {"moe_k", 2},
        {"moe_intermediate_size", 12},
        {"moe_num_shared_experts", 1},
        {"moe_layer_start_index", 1}},
       nlohmann::json::object(),
       {"model.mtp_linear_proj.0.weight", "model.mtp_emb_norm.0.weight",
        "model.mtp_hidden_norm.0.weight", "model.mtp_block.0.", ""},
       /*normed=*/false},
  };
}

inline MtpFamily mtp_family(const std::string& name) {
  for (const MtpFamily& family : mtp_families()) {
    if (family.family == name) {
      return family;
    }
  }
  return {};
}

/// Norms are drawn around what multiplies by 1.
inline HeadFiles::Tensor random_tensor(const std::string& name, const Shape& shape, float norm,
                                       std::uint64_t seed) {
  Random random(seed, std::hash<std::string>()(name));
  const auto spread = static_cast<float>(std::sqrt(3.0 / static_cast<double>(shape.back())));
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (float& value : values) {
    const auto uniform = 2.0F * static_cast<float>(random.uniform()) - 1.0F;
    value = name.find("norm") != std::string::npos ? norm + 0.3F * uniform : spread * uniform;
  }
  return {shape, std::move(values)};
}

inline NamedTensors random_tensors(const model::ModelSpec& spec, std::uint64_t seed) {
  NamedTensors tensors;
  for (const auto& [name, shape] : model::expected_tensors(spec)) {
    tensors[name] = random_tensor(name, shape, 1.0F - spec.final_norm.offset(), seed);
  }
  return tensors;
}

inline TensorMap views_of(const NamedTensors& tensors) {
  TensorMap views;
  for (const auto& [name, tensor] : tensors) {
    views[name] = {DType::f32, tensor.shape,
                   reinterpret_cast<const std::byte*>(tensor.values.data())};
  }
  return views;
}

/// A model with an MTP layer in memory, which tests may change before they write it.
class MtpFiles {
 public:
  explicit MtpFiles(const MtpFamily& of, const Sizes& sizes = {})
      : family(of),
        target(spec_of(of.family, sizes, of.keys)),
        like(spec_of(of.family, one_layer(sizes), merged(of.keys, of.layer))),
        layer(random_tensors(like, 5)) {
    const std::int64_t hidden = sizes.hidden;
    const float norm = 1.0F - target.final_norm.offset();
    const auto add = [&](const std::string& name, const Shape& shape) {
      extra[name] = random_tensor(name, shape, norm, 6);
    };
    add(of.names.fusion, {hidden, 2 * hidden});
    extra[of.names.embedding_norm] = random_tensor("norm", {hidden}, norm, 7);
    extra[of.names.stream_norm] = random_tensor("norm", {hidden}, norm, 8);
  }

  /// Writes the MTP layer, and with `whole` the model, too.
  void write(const std::filesystem::path& directory, bool whole = true) const {
    const std::filesystem::path own = directory / "layer";
    model::save_checkpoint(own, like, views_of(layer));
    const SafetensorsFile stored(own / "model.safetensors");
    const NamedTensors model = random_tensors(target, 9);
    TensorMap all = views_of(extra);
    if (whole) {
      model::save_checkpoint(directory, target, views_of(model));
    }
    const auto file =
        whole ? std::make_unique<SafetensorsFile>(directory / "model.safetensors") : nullptr;
    if (file) {
      all.insert(file->tensors().begin(), file->tensors().end());
    }
    for (const auto& [name, tensor] : stored.tensors()) {
      const std::string prefix = "model.layers.0.";
      if (name.starts_with(prefix)) {
        all[family.names.layer + name.substr(prefix.size())] = tensor;
      } else if (name == "model.norm.weight" && !family.names.norm.empty()) {
        all[family.names.norm] = tensor;
      }
    }
    for (const std::string& name : missing) {
      all.erase(name);
    }
    write_safetensors(directory / "whole.safetensors", all);
    std::filesystem::rename(directory / "whole.safetensors", directory / "model.safetensors");
    std::filesystem::remove_all(own);
  }

  MtpFamily family;
  model::ModelSpec target;
  model::ModelSpec like;  // a model of one layer, which is like the MTP layer
  NamedTensors layer;     // of `like`: its layer and its norm are the MTP layer's
  NamedTensors extra;     // the fusion and its norms
  std::vector<std::string> missing;

 private:
  static Sizes one_layer(Sizes sizes) {
    sizes.layers = 1;
    return sizes;
  }
};

}  // namespace winnow::testing
