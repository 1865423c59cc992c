// Muon (Jordan et al. 2024; Liu et al. 2025, "Muon is Scalable for LLM Training"): updates are the
// momentum with all singular values set to about 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "ops/context.h"
#include "ops/matrix.h"
#include "train/newton_schulz.h"
#include "train/parameters.h"

namespace winnow::train {

struct MuonOptions {
  double momentum = 0.95;
};

/// One update of every Role::matrix tensor, each separately, in its checkpoint's shape:
///   m = momentum m + (1 - momentum) g,  u = momentum m + (1 - momentum) g  (Nesterov),
///   x -= rate * (0.2 sqrt(max(rows, columns)) orthogonalized(u) + decay * x)
/// with g = gradient * gradient_factor. The factor 0.2 sqrt(...) gives the update the root mean
/// square that AdamW's usually has, so both can use the same learning rate.
struct MuonUpdate {
  double rate = 0.0;
  double decay = 0.0;
  double gradient_factor = 1.0;
};

/// 0.2 sqrt(max(rows, columns)).
inline double muon_scale(const Shape& shape) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
}

/// x [rows, cols], rows <= cols, becomes approximately the nearest matrix with orthonormal rows, by
/// NewtonSchulz with products as in `context`. The same bits on any number of threads.
void orthogonalize(ops::Context& context, ops::Matrix<float> x);

/// Updates values and momentum, flat arrays in the order of `list`, from its element `begin` on.
/// Matrices outside these arrays do not change.
void apply_muon(ops::Context& context, const MuonOptions& options, const MuonUpdate& update,
                const ParameterList& list, std::span<float> values,
                std::span<const float> gradients, std::span<float> momentum, std::size_t begin = 0);

}  // namespace winnow::train
