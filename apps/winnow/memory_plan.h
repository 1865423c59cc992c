// The memory for which winnow plans, and the length of text of winnow inspect and winnow doctor.
#pragma once

#include <cstddef>
#include <optional>

#include "apps/winnow/flag_group.h"

namespace winnow::cli {

/// The memory of a machine or device that is elsewhere.
struct MemoryElsewhere {
  double gib = 0.0;  // 0: what is here counts

  /// nullopt: what is here counts.
  [[nodiscard]] std::optional<std::size_t> bytes() const;
};

struct MemoryPlan {
  int context = 8192;  // tokens of a sequence
  MemoryElsewhere memory;
};

/// --memory-gib.
void add_memory_flag(const FlagGroup& group, MemoryElsewhere& memory);
/// --context and --memory-gib.
void add_plan_flags(const FlagGroup& group, MemoryPlan& plan);
/// Both throw Error that names the flag.
void check(const MemoryElsewhere& memory);
void check(const MemoryPlan& plan);

}  // namespace winnow::cli
