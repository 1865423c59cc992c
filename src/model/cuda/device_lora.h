// Adapters in device memory, and which rows of a step have which.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "base/cuda/device.h"
#include "model/lora.h"
#include "ops/cuda/linear/low_rank.h"

namespace winnow::model::cuda {

/// Products of a layer, in this order.
enum class LoraPlace : std::uint8_t { query, key, value, output, gate, up, down };
inline constexpr int kLoraPlaces = 7;

/// One adapter, its weights in bf16.
class DeviceLora {
 public:
  /// Throws Error naming a rank that is too large.
  DeviceLora(const Lora& lora, int layers);

  /// [layers * kLoraPlaces], in device memory.
  [[nodiscard]] const ops::cuda::LowRankProduct* products() const { return products_.data(); }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  winnow::cuda::DeviceBuffer<bf16> weights_;
  winnow::cuda::DeviceBuffer<ops::cuda::LowRankProduct> products_;
  int rank_ = 0;  // the largest
};

/// Those that have been asked for and still exist.
class DeviceLoras {
 public:
  explicit DeviceLoras(int layers) : layers_(layers) {}

  /// Copies it to the device the first time. Not while a step is in work.
  const DeviceLora& of(const Lora& lora);

 private:
  int layers_;
  std::map<std::weak_ptr<const Lora>, DeviceLora, std::owner_less<>> loras_;
};

/// The adapters of a step's rows, as kernels read them.
class AdaptedRows {
 public:
  /// Room for so many rows with products of up to `rank`; addresses stay as long as it is enough.
  void reserve(std::size_t rows, int rank);
  /// Of each row, null where it has none. The kernels that read the ones before must be complete.
  void put(std::span<const DeviceLora* const> rows, cudaStream_t stream);
  /// From row `first` on.
  [[nodiscard]] ops::cuda::LowRankRows from(std::size_t first = 0) const {
    return {.products = device_.data() + first, .rank = rank_, .inner = inner_.data()};
  }

 private:
  using Products = const ops::cuda::LowRankProduct*;
  int rank_ = 0;
  winnow::cuda::PinnedBuffer<Products> host_;    // [rows]
  winnow::cuda::DeviceBuffer<Products> device_;  // [rows]
  winnow::cuda::DeviceBuffer<float> inner_;
};

}  // namespace winnow::model::cuda
