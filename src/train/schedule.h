// Values that change with the step: learning rate, compression target, price of a key.
#pragma once

#include <cstdint>
#include <string_view>

namespace winnow::train {

enum class ScheduleKind : std::uint8_t { constant, cosine, linear };
/// "constant", "cosine" or "linear"; Error naming `flag` for anything else.
ScheduleKind parse_schedule(std::string_view name, std::string_view flag);

/// The factor of the learning rate: rises linearly to 1 over `warmup` steps, and falls to
/// `final_factor` over the last `decay_share` of all steps, along a line or half a cosine.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  double decay_share = 1.0;
  double final_factor = 0.0;

  /// The factor at step 0, 1, ... steps - 1.
  [[nodiscard]] double factor(std::int64_t step) const;
};

enum class RampKind : std::uint8_t {
  parabola,  // the share to evict: quickly while eviction is cheap, slowly where it hurts
  linear,    // CR rises by the same amount each step (the DMS paper)
};
RampKind parse_ramp(std::string_view name, std::string_view flag);

/// The share of keys to evict: from 0 to 1 - 1/CR over `steps` steps, constant afterwards.
struct CompressionRamp {
  RampKind kind = RampKind::parabola;
  double target_cr = 1.0;
  std::int64_t steps = 0;

  [[nodiscard]] double share(std::int64_t step) const;
};

/// The price of one key kept, in nats per token over the share of keys: a Lagrange multiplier under
/// PI control. It rises while too few keys are evicted, so that heads whose far keys
/// are worth least evict them first. (A fixed large weight on the shortfall changes all heads at
/// once, regardless of what their keys are worth: assets/README.md.)
struct PriceControl {
  double gain = 4.0;   // nats per token, per unit of share short of the target
  double rate = 0.04;  // the same, per step
  double settled = 0.0;

  /// The price of this step. `shortfall`: the target minus the share evicted in the previous step.
  double next(double shortfall);
};

}  // namespace winnow::train
