// Causal depthwise convolution: each channel is convolved separately.
#pragma once

#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// out[t, c] = bias[c] + sum over k of taps[c, k] * x[t - (K - 1) + k, c], taps [C, K]; an empty
/// bias adds nothing. Rows before the first one come from `tail` [K - 1, C], the oldest first,
/// which then receives the last rows: results do not depend on how a text is split into chunks.
/// x and out [T, C] must not overlap.
void causal_conv(Matrix<float> out, Matrix<const float> x, std::span<const float> taps,
                 std::span<const float> bias, std::span<float> tail);

/// Backward of causal_conv() of a whole text that started with a tail of zeros: adds the gradients
/// of x to dx and of the taps to dtaps (empty: not computed), from the result's gradient.
void causal_conv_backward(Matrix<float> dx, std::span<float> dtaps, Matrix<const float> dout,
                          Matrix<const float> x, std::span<const float> taps);

}  // namespace winnow::ops
