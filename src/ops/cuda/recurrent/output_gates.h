// Gates that multiply the outputs of mixers before their output projection.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// Outputs of heads [rows, heads * dim].
struct GatedHeads {
  int rows = 0;
  int heads = 0;
  int dim = 0;
  const float* gates = nullptr;  // [rows, heads * dim]
};

/// out = silu(gate) * rms_norm(x) * weight, normed by head: for recurrent layers. weight [dim]; dim
/// is a multiple of 4 up to kMostRecurrentDim.
void gated_rms_norm(bf16* out, const float* x, const GatedHeads& shape, const float* weight,
                    float eps, cudaStream_t stream);

/// out = rms_norm(silu(gate) * x) * weight, normed by head: for state spaces, whose groups take the
/// role of heads. weight [heads * dim].
void norm_gated(bf16* out, const float* x, const GatedHeads& shape, const float* weight, float eps,
                cudaStream_t stream);

/// x *= sigmoid(gate + bias): for attention with output gates. bias [heads * dim] or null; rows
/// have a multiple of 8 channels.
void sigmoid_multiply(bf16* x, const GatedHeads& shape, const float* bias, cudaStream_t stream);

}  // namespace winnow::ops::cuda
