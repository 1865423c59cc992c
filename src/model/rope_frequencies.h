// Frequencies of rotary embeddings, as transformers' ROPE_INIT_FUNCTIONS compute them.
#pragma once

#include <vector>

namespace winnow::model {

/// Radians per position of each plane.
using Frequencies = std::vector<double>;

/// theta^(-2i / channels) for i < channels / 2.
Frequencies base_frequencies(double theta, int channels);

/// Llama 3.1: wavelengths beyond original_context / low_freq_factor are stretched by `factor`,
/// those below original_context / high_freq_factor are kept, those between are blended.
struct Llama3Scaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context = 0;
};
Frequencies llama3_frequencies(Frequencies base, const Llama3Scaling& scaling);

/// YaRN (Peng et al. 2023): planes that turn more than `fast` times within the original context are
/// kept, those that turn less than `slow` times are stretched by `factor`, those between are
/// blended along their index.
struct YarnScaling {
  double theta = 10000.0;
  double factor = 1.0;
  double fast = 32.0;
  double slow = 1.0;
  int original_context = 0;
  bool truncate = true;  // the ends of the blend are whole indices
};
Frequencies yarn_frequencies(Frequencies base, const YarnScaling& scaling);

/// The base for a text of `length` tokens, more than the `context` that the model was trained for:
/// NTK-aware scaling with a factor that grows with the length.
double dynamic_theta(double theta, int channels, double factor, int context, int length);

}  // namespace winnow::model
