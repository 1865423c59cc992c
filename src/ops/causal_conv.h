// Causal convolution of each channel by itself.
#pragma once

#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// out[t, c] = bias[c] + sum over k of taps[c, k] * x[t - (K - 1) + k, c], of K taps [C, K];
/// without a bias it is empty. Rows before the first one come from `tail` [K - 1, C], the oldest
/// first, which then receives the last rows: the sums do not depend on how a text is cut. x and out
/// [T, C] are apart from each other.
void causal_conv(Matrix<float> out, Matrix<const float> x, std::span<const float> taps,
                 std::span<const float> bias, std::span<float> tail);

/// Backward of causal_conv() of a whole text, whose tail was zeros: adds the gradients of x to dx
/// and of the taps to dtaps (empty: not computed), given that of the result.
void causal_conv_backward(Matrix<float> dx, std::span<float> dtaps, Matrix<const float> dout,
                          Matrix<const float> x, std::span<const float> taps);

}  // namespace winnow::ops
