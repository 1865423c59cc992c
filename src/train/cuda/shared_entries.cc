#include "train/cuda/shared_entries.h"

#include "train/cuda/copies.h"
#include "train/cuda_memory/decoder.h"

namespace winnow::train::cuda {
namespace {

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
    : spec_(spec) {
  const SharedEntriesSizes sizes(spec, tokens, has_gradients);
  halves_ = winnow::cuda::DeviceBuffer<bf16>(sizes.entries);
  biases_ = winnow::cuda::DeviceBuffer<float>(sizes.biases);
  sums_ = winnow::cuda::DeviceBuffer<float>(sizes.gradients);
  bf16* half = halves_.data();
  float* bias = biases_.data();
  float* sum = sums_.data();
  for (const int source : spec.shared_layers()) {
    const std::size_t width = shared_entry_width(spec, source);
    const std::size_t heads = shared_bias_width(spec, source);
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
