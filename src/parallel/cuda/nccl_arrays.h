// Sums and copies of arrays between ranks that are processes, through NCCL: for training.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "parallel/communicator.h"

namespace winnow::parallel::cuda {

/// One rank's member of the group. All ranks call the same functions in the same order.
class RankArrays {
 public:
  virtual ~RankArrays() = default;

  /// For one part of `own` per rank, rank r's from cuts[r] to cuts[r + 1]: `to` = the sum of this
  /// rank's part over all ranks. `to` may be that part of `own`; the other parts stay.
  virtual void reduce_scatter(const float* own, std::span<const std::size_t> cuts, float* to,
                              cudaStream_t stream) const = 0;
  /// to [bytes] = `own` [bytes] of rank `rank`, where both may be the same memory.
  virtual void copy_from(int rank, const void* own, void* to, std::size_t bytes,
                         cudaStream_t stream) const = 0;
};

/// As make_nccl_ranks().
std::unique_ptr<RankArrays> make_nccl_arrays(Communicator& host);

}  // namespace winnow::parallel::cuda
