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

/// "int8" or "int4", the first in which a model's weights fit in `memory` bytes; empty: neither.
std::string_view format_that_fits(const model::ModelSpec& spec, double memory);

/// What a checkpoint's weights take on the CPU, in bytes.
struct WeightMemory {
  double mapped = 0.0;  // pages of files: what has no room is read from the disk again and again
  double held = 0.0;    // by the process, which cannot do without

  [[nodiscard]] double all() const { return mapped + held; }
};
WeightMemory weight_memory(const model::Checkpoint& checkpoint, WeightStorage storage);

/// What to tell of weights that do not fit in what of `memory` is available; empty: they do. Throws
/// Error where the process may not hold them.
std::string memory_warning(const model::Checkpoint& checkpoint, WeightStorage storage,
                           const HostMemory& memory);

/// The same as a note, of this machine's memory, before one rank loads a model for the CPU. Several
/// ranks may have several machines.
void note_memory(const model::Checkpoint& checkpoint, const EngineConfig& config);

}  // namespace winnow::engine
