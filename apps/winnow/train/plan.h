// What a dry run prints: tokens, arithmetic, time and memory.
#pragma once

#include <cstddef>

#include "apps/winnow/train/flags.h"
#include "train/memory_plan.h"

namespace winnow::cli {

/// Throws Error, after it has printed the plan, if `available` bytes do not suffice.
void print_plan(const train::MemoryPlan& plan, std::size_t available, const TrainingFlags& flags,
                const train::TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::cli
