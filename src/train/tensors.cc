#include "train/tensors.h"

#include <fmt/format.h>

#include <cassert>
#include <map>

#include "checkpoint/checkpoint.h"
#include "model/channels.h"
#include "train/visit_tensors.h"

namespace winnow::train {
namespace {

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
  if (model::borrows_channels(config)) {
    return attention + (config.dmc ? "dmc_key_row." : "dms_row.") + part;
  }
  return attention + (part == "norm.weight" ? "dms_proj_alpha_" : "dms_proj_alpha.") + part;
}

std::string omega_name(int layer, const std::string& part) {
  return fmt::format("model.layers.{}.self_attn.dmc_query_row.{}", layer, part);
}

std::vector<std::pair<std::string, Shape>> tensor_shapes(const ModelConfig& config) {
  const auto expected = expected_tensors(config);
  std::map<std::string, Shape> shapes(expected.begin(), expected.end());
  const auto add_rows = [&](const auto& name) {
    shapes.emplace(name("weight"), Shape{config.kv_heads, config.hidden});
    if (config.qkv_bias) {
      shapes.emplace(name("bias"), Shape{config.kv_heads});
    }
  };
  for (int i = 0; model::borrows_channels(config) && i < config.layers; ++i) {
    add_rows([&](const char* part) { return decision_name(config, i, part); });
    if (config.dmc) {
      add_rows([&](const char* part) { return omega_name(i, part); });
    }
  }
  struct Nothing {};
  Tensors<Nothing, Nothing> tree;
  std::vector<std::pair<std::string, Shape>> ordered;
  visit_tensors(config, tree, [&](const std::string& name, Nothing&) {
    if (const auto found = shapes.find(name); found != shapes.end()) {
      ordered.emplace_back(*found);
    }
  });
  assert(ordered.size() == shapes.size());
  return ordered;
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
