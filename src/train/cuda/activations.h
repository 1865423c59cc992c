// Buffers of one layer's pass on a device, with their memory.
#pragma once

#include <cstddef>

#include "base/cuda/device.h"
#include "ops/cuda/training/training_delta.h"
#include "train/cuda_memory/activations.h"

namespace winnow::train::cuda {

namespace detail {

/// A base that exists before the buffers in its memory do.
struct OwnedMemory {
  explicit OwnedMemory(std::size_t bytes) : memory(bytes) {}
  winnow::cuda::DeviceBuffer<std::byte> memory;
};

}  // namespace detail

class DeviceActivations : private detail::OwnedMemory, public ActivationBuffers {
 public:
  DeviceActivations(const model::ModelSpec& spec, std::size_t tokens)
      : OwnedMemory(bytes(spec, tokens)), ActivationBuffers(spec, tokens, memory.data()) {}
};

class LayerScratch : private detail::OwnedMemory, public ScratchBuffers {
 public:
  LayerScratch(const model::ModelSpec& spec, std::size_t tokens);

  ops::cuda::DeltaScratch delta;  // for recurrent layers
};

}  // namespace winnow::train::cuda
