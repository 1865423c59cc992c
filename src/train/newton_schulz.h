// Newton-Schulz's iteration as Muon uses it (Jordan et al. 2024).
#pragma once

namespace winnow::train {

/// x / |x| is multiplied kSteps times by kLinear + kCubic (x x^T) + kQuintic (x x^T)^2, which takes
/// every singular value to about 1 (0.7 to 1.2) without computing one.
struct NewtonSchulz {
  static constexpr int kSteps = 5;
  static constexpr float kLinear = 3.4445F;
  static constexpr float kCubic = -4.7750F;
  static constexpr float kQuintic = 2.0315F;
  static constexpr float kLeastNorm = 1e-7F;  // of x, Frobenius
};

}  // namespace winnow::train
