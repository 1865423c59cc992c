#include "model/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace winnow::model {
namespace {

double llama3_scaled(double frequency, const RopeSpec& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double longest_kept = rope.original_context / rope.high_freq_factor;
  const double shortest_stretched = rope.original_context / rope.low_freq_factor;
  if (wavelength < longest_kept) {
    return frequency;
  }
  if (wavelength > shortest_stretched) {
    return frequency / rope.factor;
  }
  const double smooth = (rope.original_context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& rope) {
  std::vector<float> frequencies(static_cast<std::size_t>(rope.channels / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.channels);
    switch (rope.scaling) {
      case RopeSpec::Scaling::none:
        break;
      case RopeSpec::Scaling::linear:
        frequency /= rope.factor;
        break;
      case RopeSpec::Scaling::llama3:
        frequency = llama3_scaled(frequency, rope);
        break;
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

}  // namespace winnow::model
