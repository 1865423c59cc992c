// The memory and the length of text for which winnow inspect and winnow doctor plan.
#pragma once

#include <cstddef>
#include <optional>

#include "apps/winnow/flag_group.h"

namespace winnow::cli {

struct MemoryPlan {
  int context = 8192;       // tokens of a sequence
  double memory_gib = 0.0;  // of a machine or device that is elsewhere; 0: what is here

  /// The memory that is elsewhere, in bytes; nullopt: what is here counts.
  [[nodiscard]] std::optional<std::size_t> memory() const;
};

/// --context and --memory-gib.
void add_plan_flags(const FlagGroup& group, MemoryPlan& plan);
/// Throws Error that names the flag.
void check(const MemoryPlan& plan);

}  // namespace winnow::cli
