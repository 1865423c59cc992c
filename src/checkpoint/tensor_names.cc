// Which tensors a model has, under the names transformers gives them.
#include <charconv>

#include "base/error.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/json.h"

namespace winnow {
namespace {

using Locate = std::function<std::string(const std::string& tensor)>;

constexpr std::string_view kLayerPrefix = "model.layers.";

std::string layer_tensor(int layer, std::string_view rest) {
  return fmt::format("{}{}.{}", kLayerPrefix, layer, rest);
}

void add_attention(const ModelConfig& config, int layer, std::map<std::string, Shape>& out) {
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;
  const auto add = [&](std::string_view name, Shape shape) {
    out.emplace(layer_tensor(layer, fmt::format("self_attn.{}", name)), std::move(shape));
  };
  add("q_proj.weight", {queries, config.hidden});
  add("k_proj.weight", {keys, config.hidden});
  add("v_proj.weight", {keys, config.hidden});
  add("o_proj.weight", {config.hidden, queries});
  if (config.qkv_bias) {
    add("q_proj.bias", {queries});
    add("k_proj.bias", {keys});
    add("v_proj.bias", {keys});
  }
  if (config.output_bias) {
    add("o_proj.bias", {config.hidden});
  }
  if (config.qk_norm) {
    add("q_norm.weight", {config.head_dim});
    add("k_norm.weight", {config.head_dim});
  }
  if (config.dms && config.dms->source == DmsConfig::Source::adapter) {
    add("dms_proj_alpha.weight", {config.kv_heads, config.hidden});
    add("dms_proj_alpha_norm.weight", {config.hidden});
  }
}

void add_layer(const ModelConfig& config, int layer, std::map<std::string, Shape>& out) {
  add_attention(config, layer, out);
  out.emplace(layer_tensor(layer, "input_layernorm.weight"), Shape{config.hidden});
  out.emplace(layer_tensor(layer, "post_attention_layernorm.weight"), Shape{config.hidden});
  out.emplace(layer_tensor(layer, "mlp.gate_proj.weight"),
              Shape{config.intermediate, config.hidden});
  out.emplace(layer_tensor(layer, "mlp.up_proj.weight"), Shape{config.intermediate, config.hidden});
  out.emplace(layer_tensor(layer, "mlp.down_proj.weight"),
              Shape{config.hidden, config.intermediate});
  if (config.mlp_bias) {
    out.emplace(layer_tensor(layer, "mlp.gate_proj.bias"), Shape{config.intermediate});
    out.emplace(layer_tensor(layer, "mlp.up_proj.bias"), Shape{config.intermediate});
    out.emplace(layer_tensor(layer, "mlp.down_proj.bias"), Shape{config.hidden});
  }
}

void check_tensor(const std::string& where, const std::string& name, const TensorView& tensor,
                  const Shape& shape) {
  require(tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16,
          "{}: tensor {} has type {}, expected fp32, fp16 or bf16", where, in_quotes(name),
          dtype_name(tensor.dtype));
  require(tensor.shape == shape, "{}: tensor {} has shape [{}], expected [{}]", where,
          in_quotes(name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
}

/// The number of the layer a tensor belongs to; -1 for none.
int layer_of(std::string_view name) {
  int layer = -1;
  if (name.starts_with(kLayerPrefix)) {
    name.remove_prefix(kLayerPrefix.size());
    std::from_chars(name.data(), name.data() + name.size(), layer);
  }
  return layer;
}

/// A weight or bias inside a layer that the configuration does not speak of would change what the
/// layer computes (a projection's bias, q_norm, a DMS adapter): running without it gives wrong text
/// rather than an error. Layers beyond num_hidden_layers and RoPE's tables are harmless.
void check_nothing_ignored(const Locate& where, const ModelConfig& config,
                           const std::map<std::string, Shape>& expected,
                           const std::map<std::string, Shape>& optional, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const int layer = layer_of(name);
    const bool parameter = name.ends_with(".weight") || name.ends_with(".bias");
    if (layer < 0 || layer >= config.layers || !parameter) {
      continue;
    }
    require(expected.contains(name) || optional.contains(name),
            "{}: tensor {} has no place in the model that config.json describes{}", where(name),
            in_quotes(name),
            name.find(".dms_proj_alpha") != std::string::npos
                ? "; expected dms_separate_alpha: true there"
                : "");
  }
}

}  // namespace

std::map<std::string, Shape> expected_tensors(const ModelConfig& config) {
  std::map<std::string, Shape> out;
  out.emplace("model.embed_tokens.weight", Shape{config.vocab, config.hidden});
  out.emplace("model.norm.weight", Shape{config.hidden});
  if (!config.tied_embeddings) {
    out.emplace("lm_head.weight", Shape{config.vocab, config.hidden});
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    add_layer(config, layer, out);
  }
  return out;
}

std::map<std::string, Shape> optional_tensors(const ModelConfig& config) {
  std::map<std::string, Shape> out;
  if (config.tied_embeddings) {  // a file that has its own head all the same means it
    out.emplace("lm_head.weight", Shape{config.vocab, config.hidden});
  }
  if (config.dms && config.dms->source == DmsConfig::Source::adapter) {
    for (int layer = 0; layer < config.layers; ++layer) {
      out.emplace(layer_tensor(layer, "self_attn.dms_proj_alpha.bias"), Shape{config.kv_heads});
    }
  }
  return out;
}

void detail::check_tensors(const Locate& where, const ModelConfig& config,
                           const TensorMap& tensors) {
  const auto expected = expected_tensors(config);
  const auto optional = optional_tensors(config);
  for (const auto& [name, shape] : expected) {
    const auto found = tensors.find(name);
    require(found != tensors.end(), "{}: tensor {} is missing, expected shape [{}]{}", where(name),
            in_quotes(name), fmt::join(shape, ", "),
            name == "lm_head.weight" ? " (or tie_word_embeddings: true in config.json)" : "");
    check_tensor(where(name), name, found->second, shape);
  }
  for (const auto& [name, shape] : optional) {
    if (const auto found = tensors.find(name); found != tensors.end()) {
      check_tensor(where(name), name, found->second, shape);
    }
  }
  check_nothing_ignored(where, config, expected, optional, tensors);
}

}  // namespace winnow
