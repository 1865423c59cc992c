// LoRA adapters in device memory, and which rows of a step use which.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "base/cuda/device.h"
#include "model/lora.h"
#include "ops/cuda/linear/low_rank.h"

namespace winnow::model::cuda {

/// The products of a layer that may have an adapter.
enum class LoraPlace : std::uint8_t { query, key, value, output, gate, up, down };
inline constexpr int kLoraPlaces = 7;

/// One adapter, its weights in bf16.
class DeviceLora {
 public:
  /// Throws Error with the rank if it is too large.
  DeviceLora(const Lora& lora, int layers);

  /// [layers * kLoraPlaces], in device memory.
  [[nodiscard]] const ops::cuda::LowRankProduct* products() const { return products_.data(); }
  [[nodiscard]] int rank() const { return rank_; }

 private:
  winnow::cuda::DeviceBuffer<bf16> weights_;
  winnow::cuda::DeviceBuffer<ops::cuda::LowRankProduct> products_;
  int rank_ = 0;  // the largest rank of all products
};

/// The adapters that were used and still exist.
class DeviceLoras {
 public:
  explicit DeviceLoras(int layers) : layers_(layers) {}

  /// Copies `lora` to the device on its first use. Not to be called while a step runs.
  const DeviceLora& of(const Lora& lora);

 private:
  int layers_;
  std::map<std::weak_ptr<const Lora>, DeviceLora, std::owner_less<>> loras_;
};

/// The adapters of a step's rows, as kernels read them.
class AdaptedRows {
 public:
  /// Makes room for `rows` rows with ranks of up to `rank`; keeps the addresses if there is room.
  void reserve(std::size_t rows, int rank);
  /// Sets each row's adapter; null: none. Kernels that read the previous ones must be complete.
  void put(std::span<const DeviceLora* const> rows, cudaStream_t stream);
  /// The adapters from row `first` on.
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
