// Gradients of the places of a model that ranks hold in parts.
#pragma once

#include <array>
#include <vector>

#include "base/cuda/device.h"
#include "train/cuda/peers.h"
#include "train/cuda_memory/rank_parts.h"

namespace winnow::train::cuda {

/// held += the sums over all ranks of this rank's parts of a range of the flat arrays. `arrays`
/// have that range, and may change.
void add_own_parts(const Peers& peers, const RankParts& parts, const Peers::Arrays<float>& arrays,
                   RankParts::Range range, float* held, cudaStream_t stream);

/// Gradients of a place's matrices are whole while a pass adds to them. Then each rank adds the sum
/// over ranks, in their order, to the part that it holds, while the pass is at the next place.
/// Layers use two buffers in turn, embedding and head a third one.
class GradientSlots {
 public:
  /// `held`: this rank's parts. All must outlive this, and all ranks make one together.
  GradientSlots(const Peers& peers, const RankParts& parts, const winnow::cuda::Stream& passes,
                float* held);

  /// Where the gradient of a matrix is while its place is open.
  [[nodiscard]] float* address_of(const Parameter& parameter) const;
  /// PlaceAccess::open_gradients() and close_gradients(). Ranks open and close in the same order.
  void open(int place);
  void close(int place);
  /// Later work of passes sees complete sums.
  void complete() const;

 private:
  struct Slot {
    winnow::cuda::DeviceBuffer<float> memory;
    Peers::Arrays<float> of_ranks;
    winnow::cuda::Event added;   // by this rank's pass
    winnow::cuda::Event summed;  // by this rank
  };
  [[nodiscard]] std::size_t slot_of(int place) const {
    return parts_.is_layer(place) ? static_cast<std::size_t>(place % 2) : 2;
  }

  const Peers& peers_;
  const RankParts& parts_;
  const winnow::cuda::Stream& passes_;
  float* held_;
  winnow::cuda::Stream sums_;
  std::array<Slot, 3> slots_;
  std::vector<const Slot*> events_;  // the slots of each rank; without shared memory only its own
};

}  // namespace winnow::train::cuda
