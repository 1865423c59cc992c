#include "train/tensors.h"

#include <fmt/format.h>

#include <cassert>

#include "model/channels.h"
#include "model/checkpoint.h"
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

std::string decision_name(const model::ModelSpec& spec, int layer, const std::string& part) {
  const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
  if (model::borrows_channels(spec)) {
    return attention + (spec.dmc ? "dmc_key_row." : "dms_row.") + part;
  }
  return attention + (part == "norm.weight" ? "dms_proj_alpha_" : "dms_proj_alpha.") + part;
}

std::string omega_name(int layer, const std::string& part) {
  return fmt::format("model.layers.{}.self_attn.dmc_query_row.{}", layer, part);
}

std::vector<std::pair<std::string, Shape>> tensor_shapes(const model::ModelSpec& spec) {
  struct Nothing {};
  Tensors<Nothing, Nothing> tree;
  std::vector<std::pair<std::string, Shape>> shapes;
  visit_tensors(spec, tree, [&](const std::string& name, const Shape& shape, Nothing&) {
    if (!shape.empty()) {
      shapes.emplace_back(name, shape);
    }
  });
  return shapes;
}

Weights bind_weights(const model::ModelSpec& spec, const FindTensor& find) {
  Weights weights;
  visit_tensors(spec, weights, [&](const std::string& name, const Shape&, auto& tensor) {
    set_view(find(name), tensor);
  });
  if (spec.tied_embeddings) {
    weights.head = weights.embedding;
  }
  return weights;
}

Gradients bind_gradients(const model::ModelSpec& spec, const FindGradient& find) {
  struct Bind {
    const FindGradient& find;

    void operator()(const std::string& name, const Shape&, std::span<float>& vector) const {
      vector = find(name);
    }
    void operator()(const std::string& name, const Shape& shape, ops::Matrix<float>& matrix) const {
      if (const std::span<float> memory = find(name); !memory.empty()) {
        matrix = {memory.data(), static_cast<std::size_t>(shape[0]),
                  static_cast<std::size_t>(shape[1])};
      }
    }
  };
  Gradients gradients;
  visit_tensors(spec, gradients, Bind{find});
  if (spec.tied_embeddings) {
    gradients.head = gradients.embedding;
  }
  return gradients;
}

}  // namespace winnow::train
