#include "train/tensors.h"

#include <fmt/format.h>

#include <cassert>
#include <map>

#include "checkpoint/checkpoint.h"
#include "train/channels.h"

namespace winnow::train {
namespace {

/// visit(name, tensor) for every tensor of the tree, matrices and vectors alike.
template <class Tree, class Visit>
void visit_tensors(const ModelConfig& config, Tree& tree, const Visit& visit) {
  visit("model.embed_tokens.weight", tree.embedding);
  if (!config.tied_embeddings) {
    visit("lm_head.weight", tree.head);
  }
  visit("model.norm.weight", tree.norm);
  tree.layers.resize(static_cast<std::size_t>(config.layers));
  for (int i = 0; i < config.layers; ++i) {
    auto& layer = tree.layers[static_cast<std::size_t>(i)];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    visit(prefix + "input_layernorm.weight", layer.attention_norm);
    visit(prefix + "post_attention_layernorm.weight", layer.mlp_norm);
    visit(attention + "q_norm.weight", layer.query_norm);
    visit(attention + "k_norm.weight", layer.key_norm);
    visit(attention + "q_proj.bias", layer.query_bias);
    visit(attention + "k_proj.bias", layer.key_bias);
    visit(attention + "v_proj.bias", layer.value_bias);
    visit(attention + "o_proj.bias", layer.output_bias);
    visit(mlp + "gate_proj.bias", layer.gate_bias);
    visit(mlp + "up_proj.bias", layer.up_bias);
    visit(mlp + "down_proj.bias", layer.down_bias);
    visit(attention + "q_proj.weight", layer.query);
    visit(attention + "k_proj.weight", layer.key);
    visit(attention + "v_proj.weight", layer.value);
    visit(attention + "o_proj.weight", layer.output);
    visit(mlp + "gate_proj.weight", layer.gate);
    visit(mlp + "up_proj.weight", layer.up);
    visit(mlp + "down_proj.weight", layer.down);
    if (config.dms || config.dmc) {
      visit(decision_name(config, i, "weight"), layer.decision);
      visit(decision_name(config, i, "bias"), layer.decision_bias);
      visit(decision_name(config, i, "norm.weight"), layer.decision_norm);
    }
    if (config.dmc) {
      visit(omega_name(i, "weight"), layer.omega);
      visit(omega_name(i, "bias"), layer.omega_bias);
    }
  }
}

void set_view(const std::optional<TensorView>& tensor, ops::Weight& weight) {
  if (tensor) {
    weight = ops::weight_view(*tensor);
  }
}

void set_view(const std::optional<TensorView>& tensor, std::span<const float>& vector) {
  if (tensor) {
    assert(tensor->dtype == DType::f32);
    vector = tensor->as<float>();
  }
}

}  // namespace

std::string decision_name(const ModelConfig& config, int layer, const std::string& part) {
  const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
  if (borrows_channels(config)) {
    return attention + (config.dmc ? "dmc_key_row." : "dms_row.") + part;
  }
  return attention + (part == "norm.weight" ? "dms_proj_alpha_" : "dms_proj_alpha.") + part;
}

std::string omega_name(int layer, const std::string& part) {
  return fmt::format("model.layers.{}.self_attn.dmc_query_row.{}", layer, part);
}

std::vector<std::pair<std::string, Shape>> tensor_shapes(const ModelConfig& config) {
  const auto expected = expected_tensors(config);
  std::vector<std::pair<std::string, Shape>> shapes(expected.begin(), expected.end());
  const auto add_rows = [&](const auto& name) {
    shapes.emplace_back(name("weight"), Shape{config.kv_heads, config.hidden});
    if (config.qkv_bias) {
      shapes.emplace_back(name("bias"), Shape{config.kv_heads});
    }
  };
  for (int i = 0; borrows_channels(config) && i < config.layers; ++i) {
    add_rows([&](const char* part) { return decision_name(config, i, part); });
    if (config.dmc) {
      add_rows([&](const char* part) { return omega_name(i, part); });
    }
  }
  return shapes;
}

Weights bind_weights(const ModelConfig& config, const FindTensor& find) {
  Weights weights;
  visit_tensors(config, weights,
                [&](const std::string& name, auto& tensor) { set_view(find(name), tensor); });
  if (config.tied_embeddings) {
    weights.head = weights.embedding;
  }
  return weights;
}

Gradients bind_gradients(const ModelConfig& config, const FindGradient& find) {
  std::map<std::string, Shape> shapes;
  for (auto& [name, shape] : tensor_shapes(config)) {
    shapes.emplace(name, shape);
  }
  struct Bind {
    const std::map<std::string, Shape>& shapes;
    const FindGradient& find;

    void operator()(const std::string& name, std::span<float>& vector) const {
      vector = find(name);
    }
    void operator()(const std::string& name, ops::Matrix<float>& matrix) const {
      if (const std::span<float> memory = find(name); !memory.empty()) {
        const Shape& shape = shapes.at(name);
        matrix = {memory.data(), static_cast<std::size_t>(shape[0]),
                  static_cast<std::size_t>(shape[1])};
      }
    }
  };
  Gradients gradients;
  visit_tensors(config, gradients, Bind{shapes, find});
  if (config.tied_embeddings) {
    gradients.head = gradients.embedding;
  }
  return gradients;
}

}  // namespace winnow::train
