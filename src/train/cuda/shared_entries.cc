#include "train/cuda/shared_entries.h"

#include "train/cuda/copies.h"

namespace winnow::train::cuda {
namespace {

// Columns of keys (values have as many), and of biases.
std::size_t entry_width(const model::ModelSpec& spec, int layer) {
  return static_cast<std::size_t>(spec.layer(layer).attention()->key_width());
}
std::size_t bias_width(const model::ModelSpec& spec, int layer) {
  return spec.decides(layer) ? static_cast<std::size_t>(spec.layer(layer).attention()->kv_heads)
                             : 0;
}

// Sum over all layers that store shared entries: columns of keys and values, and of biases.
std::size_t columns_of(const model::ModelSpec& spec, std::size_t entries, std::size_t biases) {
  std::size_t columns = 0;
  for (const int source : spec.shared_layers()) {
    columns += entries * entry_width(spec, source) + biases * bias_width(spec, source);
  }
  return columns;
}

// Widths are multiples of 8, so pieces begin at multiples of 16 bytes.
template <class T>
T* take(T*& next, std::size_t tokens, std::size_t width) {
  T* own = next;
  next += tokens * width;
  return own;
}

}  // namespace

DeviceSharedEntries::DeviceSharedEntries(const model::ModelSpec& spec, std::size_t tokens,
                                         bool has_gradients)
    : spec_(spec),
      halves_(tokens * columns_of(spec, 2, 0)),
      biases_(tokens * columns_of(spec, 0, 1)),
      sums_(has_gradients ? tokens * columns_of(spec, 2, 1) : 0) {
  bf16* half = halves_.data();
  float* bias = biases_.data();
  float* sum = sums_.data();
  for (const int source : spec.shared_layers()) {
    const std::size_t width = entry_width(spec, source);
    const std::size_t heads = bias_width(spec, source);
    DeviceEntries<bf16>& entries = entries_[source];
    entries.keys = take(half, tokens, width);
    entries.values = take(half, tokens, width);
    entries.bias = take(bias, tokens, heads);
    if (has_gradients) {
      DeviceEntries<float>& gradients = gradients_[source];
      gradients.keys = take(sum, tokens, width);
      gradients.values = take(sum, tokens, width);
      gradients.bias = take(sum, tokens, heads);
    }
  }
}

std::size_t DeviceSharedEntries::bytes(const model::ModelSpec& spec, std::size_t tokens,
                                       bool has_gradients) {
  const std::size_t gradients = has_gradients ? tokens * columns_of(spec, 2, 1) * sizeof(float) : 0;
  return tokens * columns_of(spec, 2, 0) * sizeof(bf16) +
         tokens * columns_of(spec, 0, 1) * sizeof(float) + gradients;
}

template <class T>
const DeviceEntries<T>* DeviceSharedEntries::find(const std::map<int, DeviceEntries<T>>& entries,
                                                  int layer) const {
  const model::AttentionSpec* attention = spec_.layer(layer).attention();
  if (attention == nullptr) {
    return nullptr;
  }
  const auto found = entries.find(attention->shares.value_or(layer));
  return found == entries.end() ? nullptr : &found->second;
}

template const DeviceEntries<bf16>* DeviceSharedEntries::find(
    const std::map<int, DeviceEntries<bf16>>&, int) const;
template const DeviceEntries<float>* DeviceSharedEntries::find(
    const std::map<int, DeviceEntries<float>>&, int) const;

void DeviceSharedEntries::clear_gradients(cudaStream_t stream) const {
  if (sums_.size() > 0) {
    clear_async(sums_, stream);
  }
}

}  // namespace winnow::train::cuda
