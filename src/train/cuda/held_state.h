// Values and moments that one rank updates.
#pragma once

#include <span>
#include <utility>

#include "base/cuda/device.h"
#include "train/backend.h"

namespace winnow::train::cuda {

/// The parameters that a rank holds, one part after another, and the optimiser's moments of them,
/// in fp32. Where there is no stream, no work may be pending on the device.
class HeldState {
 public:
  explicit HeldState(std::span<const float> values);

  /// Updates elements [begin, end). `gradients` and `rounded` are arrays like the values; `rounded`
  /// receives the new values in bf16; null: not needed.
  void apply(const AdamWOptions& options, const AdamW::Update& update,
             std::pair<std::size_t, std::size_t> range, const float* gradients, bf16* rounded,
             cudaStream_t stream);

  [[nodiscard]] float* values() const { return values_.data(); }
  [[nodiscard]] float* first_moments() const { return first_moments_.data(); }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

  void fetch_values(std::span<float> values) const { values_.read(values); }
  /// This object owns the host memory.
  Moments fetch_moments();
  /// Takes the moments from where fetch_moments() put them.
  void store(std::span<const float> values);

 private:
  winnow::cuda::DeviceBuffer<float> values_;
  winnow::cuda::DeviceBuffer<float> first_moments_;
  winnow::cuda::DeviceBuffer<float> second_moments_;
  Buffer<float> host_first_moments_;
  Buffer<float> host_second_moments_;
};

}  // namespace winnow::train::cuda
