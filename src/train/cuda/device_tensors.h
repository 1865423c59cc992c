// A model's tensors in device memory.
#pragma once

#include <string>

#include "base/dtype.h"
#include "train/cuda_memory/activations.h"
#include "train/parameters.h"
#include "train/visit_tensors.h"

namespace winnow::train::cuda {

/// Matrices in bf16, vectors in fp32. A layer's q, k and v are contiguous, weights as well as
/// biases, and so are gate and up: `query` and `gate` point to the whole block. `decision` and
/// `omega` are padded with zero rows up to padded_decisions().
using DeviceWeights = Tensors<const bf16*, const float*>;
using DeviceLayerWeights = LayerTensors<const bf16*, const float*>;
/// In fp32; null: not computed.
using DeviceGradients = Tensors<float*, float*>;
using DeviceLayerGradients = LayerTensors<float*, float*>;

/// Whether products read the tensor in bf16. These tensors come first in the flat arrays.
inline bool is_matrix(const Parameter& parameter) {
  return parameter.role == Role::embedding || parameter.role == Role::matrix;
}

namespace detail {

template <class OnMatrix, class OnVector>
struct BindWeight {
  OnMatrix on_matrix;
  OnVector on_vector;
  void operator()(const std::string& name, const Shape&, const bf16*& matrix) const {
    matrix = on_matrix(name);
  }
  void operator()(const std::string& name, const Shape&, const float*& vector) const {
    vector = on_vector(name);
  }
};

}  // namespace detail

/// Takes the address of every tensor from one of two functions of its name.
template <class OnMatrix, class OnVector>
DeviceWeights bind_device_weights(const model::ModelSpec& spec, const OnMatrix& on_matrix,
                                  const OnVector& on_vector) {
  DeviceWeights weights{};
  visit_tensors(spec, weights, detail::BindWeight<OnMatrix, OnVector>{on_matrix, on_vector});
  if (spec.tied_embeddings) {
    weights.head = weights.embedding;
  }
  return weights;
}

}  // namespace winnow::train::cuda
