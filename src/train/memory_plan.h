// The memory that a training run needs, computed before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "train/options.h"

namespace winnow::train {

struct MemoryPlan {
  struct Part {
    std::string name;
    std::size_t bytes = 0;
    bool once = false;  // shared by all ranks of a process; else each rank has its own
  };
  std::vector<Part> parts;
  std::int64_t parameters = 0;  // of the resulting model
  std::int64_t trained = 0;     // those that training changes
  int ranks = 1;                // ranks that share the memory: threads on the CPU

  /// Bytes that one rank needs, and that all ranks sharing the memory need.
  [[nodiscard]] std::size_t of_one() const;
  [[nodiscard]] std::size_t total() const;
};

/// For training `base`: its configuration and the bytes of its weights, which stay mapped. With a
/// CUDA device: the needs of device memory, computed without it. `available` bytes decide whether
/// activations are kept, where the options leave it open.
MemoryPlan plan_memory(const TrainingOptions& options, const model::ModelSpec& base,
                       std::size_t available);

/// Bytes that a process may still allocate on this machine, or on the fullest device that trains.
std::size_t available_memory(const TrainingOptions& options);

/// Error with both numbers when the plan needs more than `available`.
void require_fits(const MemoryPlan& plan, std::size_t available);

}  // namespace winnow::train
