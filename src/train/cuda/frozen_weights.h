// Weights on a device that training does not change.
#pragma once

#include <optional>

#include "train/cuda/access.h"
#include "train/cuda/device_tensors.h"
#include "train/cuda/peers.h"
#include "train/cuda/place_matrices.h"

namespace winnow::train::cuda {

/// A teacher's weights, and a student's when only its decisions are trained.
class FrozenWeights : public PlaceAccess {
 public:
  /// Copies the tensors that `find` has to the device. With `slots`, ranks hold parts of the
  /// matrices, and a place must be open() before it is read; without, everything is in memory. All
  /// must outlive this.
  FrozenWeights(const model::ModelSpec& spec, const FindTensor& find, const Peers& peers,
                LayerSlots* slots, const winnow::cuda::Stream& stream);

  [[nodiscard]] const bf16* matrix(const std::string& name) const;
  [[nodiscard]] const float* vector(const std::string& name) const;
  [[nodiscard]] DeviceWeights view(const model::ModelSpec& spec) const;

  void open(int place, int next) override;

 private:
  void take_matrix(const Parameter& parameter, const bf16* values) const;

  ParameterList list_;
  RankParts parts_;                            // whole models use its offsets only
  winnow::cuda::DeviceBuffer<bf16> matrices_;  // all, or what this rank holds
  winnow::cuda::DeviceBuffer<float> vectors_;
  std::optional<PlaceMatrices> places_;  // of parts
};

}  // namespace winnow::train::cuda
