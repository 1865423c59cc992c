#include "apps/winnow/memory_plan.h"

#include "base/error.h"

namespace winnow::cli {
namespace {

constexpr double kBytesPerGib = 1 << 30;
constexpr double kMostMemoryGib = 1 << 20;
constexpr int kMostContext = 1 << 24;

}  // namespace

std::optional<std::size_t> MemoryPlan::memory() const {
  return memory_gib > 0.0 ? std::optional(static_cast<std::size_t>(memory_gib * kBytesPerGib))
                          : std::nullopt;
}

void add_plan_flags(const FlagGroup& group, MemoryPlan& plan) {
  group.option("--context", plan.context, "N", "Tokens of a sequence");
  group.option("--memory-gib", plan.memory_gib, "GIB",
               "Plan for so much free memory instead of what is here; 0: what is here");
}

void check(const MemoryPlan& plan) {
  require(plan.context >= 1 && plan.context <= kMostContext, "--context {}: expected 1 to {}",
          plan.context, kMostContext);
  require(plan.memory_gib >= 0.0 && plan.memory_gib <= kMostMemoryGib,
          "--memory-gib {}: expected 0 to {}", plan.memory_gib, kMostMemoryGib);
}

}  // namespace winnow::cli
