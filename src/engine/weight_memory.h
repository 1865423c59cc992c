// Whether a model's weights fit in memory.
#pragma once

#include <string>
#include <string_view>

#include "base/host_memory.h"
#include "engine/engine.h"
#include "model/checkpoint.h"

namespace winnow::engine {

/// Bytes of a model's matrices in a format; `as_stored` is bf16.
double weight_bytes(const model::ModelSpec& spec, WeightStorage storage);

/// Bytes of the copies of a model's matrices that a device's engine holds if it has room
/// (has_room_for_copies). fp8_products: those of layers are fp8.
double copy_bytes(const model::ModelSpec& spec, bool fp8_products);

/// "int8" or "int4", the first in which a model's weights fit in `memory` bytes; empty: neither.
std::string_view format_that_fits(const model::ModelSpec& spec, double memory);

/// The memory that a checkpoint's weights take on the CPU, in bytes.
struct WeightMemory {
  double mapped = 0.0;  // pages of files: those without room are read again and again
  double held = 0.0;    // memory of the process, which must have room

  [[nodiscard]] double all() const { return mapped + held; }
};
WeightMemory weight_memory(const model::Checkpoint& checkpoint, WeightStorage storage);

/// The warning for weights that do not fit in the available part of `memory`; empty if they fit.
/// Throws Error if the process cannot hold them.
std::string memory_warning(const model::Checkpoint& checkpoint, WeightStorage storage,
                           const HostMemory& memory);

/// Prints the same as a note for this machine's memory, before a single rank loads a model for the
/// CPU. Several ranks may run on several machines.
void note_memory(const model::Checkpoint& checkpoint, const EngineConfig& config);

}  // namespace winnow::engine
