#include "apps/winnow/unused_flags.h"

#include <initializer_list>

#include "base/error.h"

namespace winnow::cli {
namespace {

bool is_given(const TrainingFlags& flags, const char* name) {
  return flags.command->get_option(name)->count() > 0;
}

void refuse(const TrainingFlags& flags, bool unused, std::initializer_list<const char*> names,
            const char* why) {
  for (const char* name : names) {
    require(!unused || !is_given(flags, name), "{}: {}", name, why);
  }
}

// Defaults suit long runs, so only flags that were given are checked against --steps.
void refuse_unreached(const TrainingFlags& flags, const char* name, std::int64_t value) {
  require(!is_given(flags, name) || value <= flags.steps,
          "{} {}: expected at most {}, the --steps: its end would not be reached", name, value,
          flags.steps);
}

void refuse_unused_of_retrofit(const TrainingFlags& flags) {
  const bool dmc = flags.method == "dmc";
  const bool one_sided = flags.loss == "one-sided";
  refuse(flags, dmc,
         {"--decisions", "--window", "--shift", "--eviction", "--channel", "--scale",
          "--keep-after-rope"},
         "--method dmc has no such thing");
  refuse(flags, !dmc, {"--merge-span", "--uniform-weights", "--fixed-pooling"},
         "--method dms has no such thing");
  refuse(flags, !dmc && flags.decisions == "adapter", {"--channel", "--keep-after-rope"},
         "an adapter borrows no channel");
  refuse(flags, flags.eviction == "immediate", {"--shift"},
         "--eviction immediate decides when a key is --window steps old");
  refuse(flags, one_sided, {"--price-gain", "--price-rate"}, "--loss one-sided has no price");
  refuse(flags, !one_sided, {"--shortfall-weight"}, "goes with --loss one-sided only");
  refuse_unreached(flags, "--ramp-steps", flags.ramp_steps.value_or(0));
}

}  // namespace

void refuse_unused(const TrainingFlags& flags) {
  refuse(flags, flags.optimizer == "adamw", {"--momentum"}, "goes with --optimizer muon only");
  refuse_unreached(flags, "--warmup", flags.warmup);
  if (flags.retrofit) {
    refuse_unused_of_retrofit(flags);
  }
}

}  // namespace winnow::cli
