// Entries that several layers of a model attend to, on a device: train/shared_entries.h.
#pragma once

#include <map>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "model/spec.h"

namespace winnow::train::cuda {

/// The entries that attention reads from a layer that stores them: keys and values in bf16, or
/// their gradients in fp32, because gradients of several layers are summed.
template <class T>
struct DeviceEntries {
  T* keys = nullptr;  // [T, kv_heads * head_dim]
  T* values = nullptr;
  float* bias = nullptr;  // [T, kv_heads]; for a layer that decides
};

/// For layers whose entries others share, and for those others; null for all other layers.
class DeviceSharedEntries {
 public:
  DeviceSharedEntries(const model::ModelSpec& spec, std::size_t tokens, bool has_gradients);

  [[nodiscard]] const DeviceEntries<bf16>* entries_of(int layer) const {
    return find(entries_, layer);
  }
  [[nodiscard]] const DeviceEntries<float>* gradients_of(int layer) const {
    return find(gradients_, layer);
  }
  void clear_gradients(cudaStream_t stream) const;

 private:
  template <class T>
  const DeviceEntries<T>* find(const std::map<int, DeviceEntries<T>>& entries, int layer) const;

  model::ModelSpec spec_;
  winnow::cuda::DeviceBuffer<bf16> halves_;
  winnow::cuda::DeviceBuffer<float> biases_;
  winnow::cuda::DeviceBuffer<float> sums_;      // all gradients
  std::map<int, DeviceEntries<bf16>> entries_;  // by the layer that stores them
  std::map<int, DeviceEntries<float>> gradients_;
};

}  // namespace winnow::train::cuda
