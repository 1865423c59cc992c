// The short convolution of LFM2 (Liquid AI 2025).
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

struct ShortConv {
  const float* projected = nullptr;  // [T, 2 * channels]: gates of the input, then the input
  const float* gates = nullptr;      // [T, channels]: of the output
  const float* taps = nullptr;       // [tap_count, channels]
  int tap_count = 0;
  int channels = 0;
  bf16* out = nullptr;  // [T, channels]
};

/// out = gate * causal_conv(input gate * input); updates the convolution's last inputs in the
/// states. The sums do not depend on how a text is split.
void short_conv(const ShortConv& conv, const RecurrentRows& rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
