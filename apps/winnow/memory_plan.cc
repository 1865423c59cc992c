#include "apps/winnow/memory_plan.h"

#include "base/error.h"

namespace winnow::cli {
namespace {

constexpr double kBytesPerGib = 1 << 30;
constexpr double kMostMemoryGib = 1 << 20;
constexpr int kMostContext = 1 << 24;

}  // namespace

std::optional<std::size_t> MemoryElsewhere::bytes() const {
  return gib > 0.0 ? std::optional(static_cast<std::size_t>(gib * kBytesPerGib)) : std::nullopt;
}

void add_memory_flag(const FlagGroup& group, MemoryElsewhere& memory) {
  group.option("--memory-gib", memory.gib, "GIB",
               "Plan for so much free memory instead of what is here; 0: what is here");
}

void add_plan_flags(const FlagGroup& group, MemoryPlan& plan) {
  group.option("--context", plan.context, "N", "Tokens of a sequence");
  add_memory_flag(group, plan.memory);
}

void check(const MemoryElsewhere& memory) {
  require(memory.gib >= 0.0 && memory.gib <= kMostMemoryGib, "--memory-gib {}: expected 0 to {}",
          memory.gib, kMostMemoryGib);
}

void check(const MemoryPlan& plan) {
  require(plan.context >= 1 && plan.context <= kMostContext, "--context {}: expected 1 to {}",
          plan.context, kMostContext);
  check(plan.memory);
}

}  // namespace winnow::cli
