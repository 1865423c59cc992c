// How the devices of several ranks exchange values in an update: they read each other's memory.
#pragma once

#include <vector>

#include "parallel/cuda/device_ranks.h"
#include "train/cuda/weights.h"
#include "train/partition.h"

namespace winnow::train::cuda {

/// Each rank makes one; all call its functions together. A rank's gradients are complete, and its
/// reads of weights are done, when its host has waited for its stream.
class Exchange {
 public:
  /// `ranks` and `weights`, of this rank's `device`, must outlive it.
  Exchange(parallel::Communicator& ranks, int device, const Partition& partition,
           const TrainedWeights& weights);

  /// Sums this rank's part of the gradient over all ranks, in the order of the ranks.
  void reduce_gradients(const winnow::cuda::Stream& stream) const;
  /// Copies other ranks' parts of the weights that products read.
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
