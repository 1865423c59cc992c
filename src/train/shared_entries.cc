#include "train/shared_entries.h"

#include <algorithm>
#include <array>

namespace winnow::train {
namespace {

// Columns of keys, values and bias.
std::array<std::size_t, 3> widths_of(const model::ModelSpec& spec, int layer) {
  const model::AttentionSpec& attention = *spec.layer(layer).attention();
  return {static_cast<std::size_t>(attention.key_width()),
          static_cast<std::size_t>(attention.value_width()),
          spec.decides(layer) ? static_cast<std::size_t>(attention.kv_heads) : 0};
}

}  // namespace

SharedEntries::SharedEntries(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients)
    : spec_(spec), memory_(bytes(spec, tokens, has_gradients) / sizeof(float)) {
  float* next = memory_.data();
  const auto take = [&](std::size_t width) {
    const ops::Matrix<float> matrix(next, tokens, width);
    next += tokens * width;
    return matrix;
  };
  for (const int source : spec.shared_layers()) {
    const auto [keys, values, bias] = widths_of(spec, source);
    entries_[source] = {take(keys), take(values), take(bias)};
    if (has_gradients) {
      gradients_[source] = {take(keys), take(values), take(bias)};
    }
  }
}

std::size_t SharedEntries::bytes(const model::ModelSpec& spec, std::size_t tokens,
                                 bool has_gradients) {
  std::size_t floats = 0;
  for (const int source : spec.shared_layers()) {
    const auto [keys, values, bias] = widths_of(spec, source);
    floats += tokens * (keys + values + bias) * (has_gradients ? 2 : 1);
  }
  return floats * sizeof(float);
}

const Entries* SharedEntries::find(const ByLayer& entries, int layer) const {
  const model::AttentionSpec* attention = spec_.layer(layer).attention();
  if (attention == nullptr) {
    return nullptr;
  }
  const auto found = entries.find(attention->shares.value_or(layer));
  return found == entries.end() ? nullptr : &found->second;
}

void SharedEntries::clear_gradients() {
  for (const auto& [layer, of] : gradients_) {
    for (const ops::Matrix<float>& matrix : {of.keys, of.values, of.bias}) {
      std::fill_n(matrix.data, matrix.rows * matrix.cols, 0.0F);
    }
  }
}

}  // namespace winnow::train
