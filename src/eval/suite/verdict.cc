#include "eval/suite/verdict.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

namespace winnow::eval {
namespace {

constexpr double kNormalQuantile = 1.6448536269514722;  // exceeded with a probability of 5 %
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// By how many standard errors the answers' loss exceeds `loss` (Tango 1998, equation 10).
double score(const PairedCounts& answers, double loss) {
  const double n = answers.questions;
  const double a = 2.0 * n;
  const double b = -answers.only_base - answers.only_student +
                   (2.0 * n - answers.only_base + answers.only_student) * loss;
  const double c = -answers.only_student * loss * (1.0 - loss);
  const double root = std::sqrt(std::max(0.0, b * b - 4.0 * a * c));
  const double only_student = (root - b) / (2.0 * a);
  const double variance = n * (2.0 * only_student + loss * (1.0 - loss));
  const double distance = answers.only_base - answers.only_student - n * loss;
  if (distance == 0.0) {
    return 0.0;
  }
  return variance > 0.0 ? distance / std::sqrt(variance) : std::copysign(kUnbounded, distance);
}

// The loss at which the score, which falls as the loss grows, is `wanted`.
double loss_at(const PairedCounts& answers, double wanted) {
  constexpr int kHalvings = 60;
  double low = -1.0;
  double high = 1.0;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2.0;
    (score(answers, middle) > wanted ? low : high) = middle;
  }
  return (low + high) / 2.0;
}

// The smallest sample size for which `decides` is true; it must be true for all larger ones.
std::optional<std::int64_t> least_size(std::int64_t from,
                                       const std::function<bool(double)>& decides) {
  constexpr std::int64_t kMost = 100'000'000;
  std::int64_t high = std::max<std::int64_t>(from, 1);
  while (!decides(static_cast<double>(high))) {
    if (high > kMost) {
      return std::nullopt;
    }
    high *= 2;
  }
  std::int64_t low = std::max(from, high / 2);
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (decides(static_cast<double>(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace

double student_quantile(double freedom) {
  if (freedom <= 1.0) {
    return std::tan(0.45 * std::numbers::pi);
  }
  if (freedom <= 2.0) {
    return 0.9 * std::sqrt(2.0 / (1.0 - 0.9 * 0.9));
  }
  // The normal quantile's expansion for Student's t: Abramowitz and Stegun 26.7.5.
  const double z = kNormalQuantile;
  const double square = z * z;
  const double first = z * (square + 1.0) / 4.0;
  const double second = z * ((5.0 * square + 16.0) * square + 3.0) / 96.0;
  const double third = z * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0;
  const double fourth =
      z * ((((79.0 * square + 776.0) * square + 1482.0) * square - 1920.0) * square - 945.0) /
      92160.0;
  return z + (first + (second + (third + fourth / freedom) / freedom) / freedom) / freedom;
}

Interval interval_of(const Estimate& loss) {
  if (loss.count < 2 || std::isnan(loss.error)) {
    return {-kUnbounded, kUnbounded};
  }
  const double reach = student_quantile(static_cast<double>(loss.count - 1)) * loss.error;
  return {loss.mean - reach, loss.mean + reach};
}

Interval interval_of(const PairedCounts& answers) {
  if (answers.questions <= 0.0) {
    return {-kUnbounded, kUnbounded};
  }
  return {loss_at(answers, kNormalQuantile), loss_at(answers, -kNormalQuantile)};
}

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::holds ? "holds" : verdict == Verdict::loses ? "loses" : "not decided";
}

Verdict decide(const Interval& loss, double allowed) {
  return loss.high <= allowed ? Verdict::holds
         : loss.low > allowed ? Verdict::loses
                              : Verdict::undecided;
}

std::optional<std::int64_t> missing_values(const Estimate& loss, double allowed) {
  if (loss.count < 2 || std::isnan(loss.error)) {
    return std::nullopt;  // the variance is unknown
  }
  const auto decides = [&](double size) {
    Estimate larger = loss;
    larger.count = static_cast<std::int64_t>(size);
    larger.error = loss.error * std::sqrt(static_cast<double>(loss.count) / size);
    return decide(interval_of(larger), allowed) != Verdict::undecided;
  };
  const auto size = least_size(loss.count, decides);
  return size ? std::optional(*size - loss.count) : std::nullopt;
}

std::optional<std::int64_t> missing_values(const PairedCounts& answers, double allowed) {
  if (answers.questions <= 0.0) {
    return std::nullopt;
  }
  const auto decides = [&](double size) {
    const double by = size / answers.questions;
    const PairedCounts larger{size, answers.only_base * by, answers.only_student * by};
    return decide(interval_of(larger), allowed) != Verdict::undecided;
  };
  const auto now = static_cast<std::int64_t>(answers.questions);
  const auto size = least_size(now, decides);
  return size ? std::optional(*size - now) : std::nullopt;
}

}  // namespace winnow::eval
