// Runs on a CUDA device: a cache, and all it takes to run steps on it.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/runner.h"
#include "model/cuda/device_model.h"

namespace winnow::engine {

/// What takes the device's memory beside the weights.
struct MemoryPlan {
  int most_padded = 0;       // sequences of steps that are padded; 0: none are
  bool with_copies = false;  // of the weights, see MatrixWeights
  std::size_t cache_bytes = 0;
  int states = 0;  // of recurrent layers that the cache has room for, if the model has them
};

/// `model` must outlive the runner.
std::unique_ptr<Runner> make_cuda_runner(int device, const model::cuda::DeviceModel& model,
                                         const kvcache::CacheConfig& config,
                                         const MemoryPlan& plan);

}  // namespace winnow::engine
