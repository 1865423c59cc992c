// Linear layers split into panels of output columns, each a separate product.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/linear.h"

namespace winnow::ops::cpu {

/// Some columns of a target's output: one call of oneDNN computes them.
struct Panel {
  const LinearTarget* target;
  std::size_t begin;
  std::size_t end;
};

/// Wide enough for oneDNN to work well and for threads to share evenly, narrow enough for the
/// weights of a panel to stay in the second-level cache.
std::vector<Panel> cut_into_panels(std::span<const LinearTarget> targets);

std::size_t widest(std::span<const Panel> panels);

Matrix<float> out_of(const Panel& panel);

/// Adds the panel's bias, if there is one, to each row of `out`.
void add_bias(const Panel& panel, Matrix<float> out);

}  // namespace winnow::ops::cpu
