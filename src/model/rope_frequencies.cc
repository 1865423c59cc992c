#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace winnow::model {
namespace {

double llama3_scaled(double frequency, const Llama3Scaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double longest_kept = scaling.original_context / scaling.high_freq_factor;
  const double shortest_stretched = scaling.original_context / scaling.low_freq_factor;
  if (wavelength < longest_kept) {
    return frequency;
  }
  if (wavelength > shortest_stretched) {
    return frequency / scaling.factor;
  }
  const double smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The (fractional) index of the plane that makes `turns` rotations within the original context.
double plane_of(double turns, int channels, const YarnScaling& scaling) {
  return channels * std::log(scaling.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(scaling.theta));
}

}  // namespace

Frequencies base_frequencies(double theta, int channels) {
  Frequencies frequencies(static_cast<std::size_t>(channels / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / channels);
  }
  return frequencies;
}

Frequencies llama3_frequencies(Frequencies base, const Llama3Scaling& scaling) {
  std::ranges::transform(base, base.begin(),
                         [&](double frequency) { return llama3_scaled(frequency, scaling); });
  return base;
}

Frequencies yarn_frequencies(Frequencies base, const YarnScaling& scaling) {
  const int channels = 2 * static_cast<int>(base.size());
  double first = plane_of(scaling.fast, channels, scaling);
  double last = plane_of(scaling.slow, channels, scaling);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, channels - 1.0);
  if (first == last) {
    last += 0.001;  // as transformers does, not to divide by 0
  }
  for (std::size_t i = 0; i < base.size(); ++i) {
    const double stretched =
        std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    base[i] *= stretched / scaling.factor + (1.0 - stretched);
  }
  return base;
}

double dynamic_theta(double theta, int channels, double factor, int context, int length) {
  const double stretch = factor * length / context - (factor - 1.0);
  return theta * std::pow(stretch, channels / (channels - 2.0));
}

}  // namespace winnow::model
