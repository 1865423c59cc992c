// What the devices of several ranks exchange in an update, by reading each other's memory.
#pragma once

#include <vector>

#include "parallel/cuda/device_ranks.h"
#include "train/cuda/weights.h"
#include "train/partition.h"

namespace winnow::train::cuda {

/// All ranks make one, and call its functions together. Gradients are complete, and weights have
/// been read, when a rank's host has waited for its stream.
class Exchange {
 public:
  /// `ranks` and `weights`, of this rank's `device`, must outlive it.
  Exchange(parallel::Communicator& ranks, int device, const Partition& partition,
           const TrainedWeights& weights);

  /// This rank's part of the gradient becomes the sum of all ranks', added in their order.
  void reduce_gradients(const winnow::cuda::Stream& stream) const;
  /// The weights that products read: other ranks' parts of them.
  void gather_weights(const winnow::cuda::Stream& stream) const;

 private:
  template <class T>
  [[nodiscard]] std::vector<const T*> addresses_of(const winnow::cuda::DeviceBuffer<T>& own) const;

  parallel::Communicator& host_;
  parallel::cuda::DeviceRanks ranks_;
  const Partition& partition_;
  const TrainedWeights& weights_;
  std::vector<const float*> gradients_;  // by rank
  std::vector<const bf16*> matrices_;
  std::vector<const float*> vectors_;
};

}  // namespace winnow::train::cuda
