// The order in which a block of a batched product processes its work.
#pragma once

#include "ops/cuda/linear/small_batch_gemm_kernels.h"

namespace winnow::ops::cuda {

/// The stages of a block's units, one after another.
class StageWalk {
 public:
  __device__ explicit StageWalk(const BatchUnits& work)
      : work_(work), unit_(static_cast<int>(blockIdx.x)) {
    begin();
  }
  [[nodiscard]] __device__ bool is_over() const { return unit_ >= work_.units; }
  [[nodiscard]] __device__ int group() const { return unit_ / work_.parts; }
  [[nodiscard]] __device__ int part() const { return unit_ % work_.parts; }
  [[nodiscard]] __device__ int stage() const { return stage_; }
  [[nodiscard]] __device__ bool ends_unit() const { return stage_ + 1 == end_; }
  __device__ void next() {
    if (++stage_ == end_) {
      unit_ += static_cast<int>(gridDim.x);
      begin();
    }
  }

 private:
  __device__ void begin() {
    stage_ = work_.stages * part() / work_.parts;
    end_ = work_.stages * (part() + 1) / work_.parts;
  }

  const BatchUnits& work_;
  int unit_;
  int stage_ = 0;
  int end_ = 0;
};

}  // namespace winnow::ops::cuda
