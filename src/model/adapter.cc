#include "model/adapter.h"

#include <cmath>
#include <numeric>
#include <span>

#include "model/visit_tensors.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace winnow::model {
namespace {

constexpr float kGateEps = 1e-6F;

ops::Matrix<float> take_rows(ops::Context& context, std::size_t rows, std::size_t cols) {
  return {context.workspace->take<float>(rows * cols).data(), rows, cols};
}

const float* bias_or_null(const std::vector<float>& bias) {
  return bias.empty() ? nullptr : bias.data();
}

float dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0F);
}

// x weight^T + bias; each group of `width` columns is normed.
ops::Matrix<float> project_normed(ops::Context& context, ops::Matrix<const float> x,
                                  const ops::Weight& weight, const std::vector<float>& bias,
                                  std::span<const float> norm) {
  const ops::Matrix<float> out = take_rows(context, x.rows, static_cast<std::size_t>(weight.rows));
  ops::linear(context, out, x, weight, bias_or_null(bias));
  const ops::Matrix<float> heads(out.data, out.rows * out.cols / norm.size(), norm.size());
  ops::rms_norm(heads, heads, norm, kGateEps);
  return out;
}

void apply_gate(ops::Context& context, const AdapterWeights& adapter, ops::Matrix<const float> x,
                ops::Matrix<float> out) {
  const std::size_t width = adapter.key_norm.size();
  const std::size_t heads = out.cols;
  const std::size_t group = adapter.group_bias.size() / heads;
  const std::size_t sinks = adapter.sinks.size() / (heads * width);
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  const ops::Matrix<float> queries =
      project_normed(context, x, adapter.query, adapter.query_bias, adapter.query_norm);
  const ops::Matrix<float> keys = project_normed(context, x, adapter.key, {}, adapter.key_norm);
  const std::span<const float> fixed(adapter.sinks);
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      const auto key = keys.row(t).subspan(h * width, width);
      float sum = 0.0F;
      for (std::size_t g = h * group; g < (h + 1) * group; ++g) {
        const auto query = queries.row(t).subspan(g * width, width);
        const float own = dot(key, query) * scale + adapter.group_bias[g];
        float others = 0.0F;
        for (std::size_t s = h * sinks; s < (h + 1) * sinks; ++s) {
          others += std::exp(dot(fixed.subspan(s * width, width), query) * scale - own);
        }
        sum += 1.0F / (1.0F + others);
      }
      out.row(t)[h] = sum / static_cast<float>(group);
    }
  }
}

// Empty members: the visit is used only for names and shapes.
struct NoTensor {};
struct AdapterOfNothing {
  NoTensor norm, projection, bias, inner, inner_bias, query, query_bias, key, query_norm, key_norm,
      sinks, group_bias;
};

}  // namespace

std::vector<AdapterTensor> adapter_tensors(const ModelSpec& spec) {
  std::vector<AdapterTensor> tensors;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    if (!spec.has_adapter(layer)) {
      continue;
    }
    AdapterOfNothing adapter;
    const std::size_t prefix = adapter_prefix(layer).size();
    visit_adapter(spec, layer, adapter,
                  [&](const std::string& name, const Shape& shape, const NoTensor& member) {
                    tensors.push_back({.layer = layer,
                                       .name = name,
                                       .part = name.substr(prefix),
                                       .shape = shape,
                                       .optional = &member == &adapter.bias});
                  });
  }
  return tensors;
}

void apply_adapter(ops::Context& context, const ModelSpec& spec, const AdapterWeights& adapter,
                   ops::Matrix<const float> hidden, ops::Matrix<float> out) {
  const ops::Workspace::Scope scope(*context.workspace);
  ops::Matrix<const float> x = hidden;
  if (!adapter.norm.empty()) {
    const ops::Matrix<float> normed = take_rows(context, hidden.rows, hidden.cols);
    ops::rms_norm(normed, hidden, adapter.norm, spec.final_norm.eps);
    x = normed;
  }
  switch (spec.dms->adapter.kind) {
    case AdapterSpec::Kind::gate:
      return apply_gate(context, adapter, x, out);
    case AdapterSpec::Kind::mlp: {
      const ops::Matrix<float> inner =
          take_rows(context, x.rows, static_cast<std::size_t>(adapter.inner.rows));
      ops::linear(context, inner, x, adapter.inner, bias_or_null(adapter.inner_bias));
      ops::activate(ops::Activation::gelu, inner);
      x = inner;
      [[fallthrough]];
    }
    case AdapterSpec::Kind::linear:
      return ops::linear(context, out, x, adapter.projection, bias_or_null(adapter.bias));
  }
}

}  // namespace winnow::model
