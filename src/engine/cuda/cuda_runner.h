// Runs a model on a CUDA device: a cache, and everything needed to run steps on it.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/runner.h"
#include "model/cuda/device_model.h"
#include "model/cuda/matrix_weights.h"

namespace winnow::engine {

/// The use of a device's memory besides the weights.
struct MemoryPlan {
  int most_padded = 0;       // the most sequences of padded steps; 0: no padding
  bool with_copies = false;  // copies of the weights, see MatrixWeights
  model::cuda::Arithmetic arithmetic = model::cuda::Arithmetic::bf16;
  std::size_t cache_bytes = 0;
  int states = 0;  // states of recurrent layers for which the cache has room
};

/// `model` must outlive the runner.
std::unique_ptr<Runner> make_cuda_runner(int device, const model::cuda::DeviceModel& model,
                                         const kvcache::CacheConfig& config,
                                         const MemoryPlan& plan);

}  // namespace winnow::engine
