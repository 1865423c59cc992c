// What a DMS adapter computes from a layer's input.
//
//   linear  y = weight x + bias
//   mlp     y = weight gelu(inner x + inner_bias) + bias
//   gate    per KV head, with its own small key k, a query q for each query head of its group, and
//           fixed keys s (sinks), all normed: y = the mean over the group of
//           1 / (1 + sum over s of exp((s . q - k . q) / sqrt(width) - group_bias))
// where x is the layer's normed input.
#pragma once

#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// A tensor of an adapter and its name in files.
struct AdapterTensor {
  int layer = 0;
  std::string name;
  std::string part;  // the end of `name`, the same in all layers: ".weight", "_norm.weight", ...
  Shape shape;
  bool optional = false;
};
/// The tensors of all adapters.
std::vector<AdapterTensor> adapter_tensors(const ModelSpec& spec);

/// Computes out [T, kv_heads] from `hidden` [T, hidden], the layer's input before its norm.
void apply_adapter(ops::Context& context, const ModelSpec& spec, const AdapterWeights& adapter,
                   ops::Matrix<const float> hidden, ops::Matrix<float> out);

}  // namespace winnow::model
