#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace winnow::train {

ScheduleKind parse_schedule(std::string_view name, std::string_view flag) {
  if (name == "constant") {
    return ScheduleKind::constant;
  }
  require(name == "cosine" || name == "linear", "{} {}: expected constant, cosine or linear", flag,
          name);
  return name == "cosine" ? ScheduleKind::cosine : ScheduleKind::linear;
}

double Schedule::factor(std::int64_t step) const {
  const auto now = static_cast<double>(step);
  const double rise = warmup > 0 ? std::min(1.0, (now + 1.0) / static_cast<double>(warmup)) : 1.0;
  if (kind == ScheduleKind::constant) {
    return rise;
  }
  const double falling = std::max(1.0, static_cast<double>(steps) * decay_share);
  const double left = std::clamp((static_cast<double>(steps) - now) / falling, 0.0, 1.0);
  const double shape =
      kind == ScheduleKind::linear ? left : 0.5 - 0.5 * std::cos(std::numbers::pi * left);
  return std::min(rise, final_factor + (1.0 - final_factor) * shape);
}

RampKind parse_ramp(std::string_view name, std::string_view flag) {
  require(name == "parabola" || name == "linear", "{} {}: expected parabola or linear", flag, name);
  return name == "linear" ? RampKind::linear : RampKind::parabola;
}

double CompressionRamp::share(std::int64_t step) const {
  const double done =
      steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0)
                : 1.0;
  if (kind == RampKind::linear) {
    return 1.0 - 1.0 / (1.0 + (target_cr - 1.0) * done);
  }
  return (1.0 - 1.0 / target_cr) * (1.0 - (1.0 - done) * (1.0 - done));
}

double PriceControl::next(double shortfall) {
  settled = std::max(0.0, settled + rate * shortfall);
  return std::max(0.0, settled + gain * shortfall);
}

}  // namespace winnow::train
