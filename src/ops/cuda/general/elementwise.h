// Small elementwise parts of a layer on the device: multipliers of the residual stream, soft caps
// of logits, rotary embedding of some of a head's channels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// x [count] *= factor.
void scale(float* x, std::size_t count, float factor, cudaStream_t stream);
void scale(bf16* x, std::size_t count, float factor, cudaStream_t stream);
/// The same by a factor in device memory.
void scale_by(float* x, std::size_t count, const float* factor, cudaStream_t stream);

/// x [count] += factor * y [count].
void add_scaled(float* x, const float* y, std::size_t count, float factor, cudaStream_t stream);
void add_scaled(float* x, const bf16* y, std::size_t count, float factor, cudaStream_t stream);

/// out [count] = x [count], rounded.
void round(bf16* out, const float* x, std::size_t count, cudaStream_t stream);

/// Rows of logits [rows, cols], `stride` elements apart.
struct LogitRows {
  int rows = 0;
  int cols = 0;
  std::size_t stride = 0;
};

/// x = cap * tanh(x / cap), in place; cap > 0 (ops/soft_cap.h).
void soft_cap(float* x, const LogitRows& shape, float cap, cudaStream_t stream);

/// Backward of soft_cap, in place: converts the gradient of its result, `capped`, to that of its
/// input. Both have rows of the same shape.
void soft_cap_backward(float* dx, const float* capped, const LogitRows& shape, float cap,
                       cudaStream_t stream);
void soft_cap_backward(bf16* dx, const float* capped, const LogitRows& shape, float cap,
                       cudaStream_t stream);

/// Rows of heads [rows, heads * head_dim], `stride` elements apart.
struct HeadRows {
  int rows = 0;
  int heads = 0;
  int head_dim = 0;
  std::size_t stride = 0;
};

/// Rotates the first `rotary` channels of every head in place: channels i and i + rotary / 2 are a
/// pair, rotated by the row's angle i; the other channels do not change. angles [rows,
/// rotary / 2] are cosine and sine, times a factor if there is one (rope_angles).
void rope(bf16* x, const HeadRows& shape, const float2* angles, int rotary, cudaStream_t stream);
void rope(float* x, const HeadRows& shape, const float2* angles, int rotary, cudaStream_t stream);

/// Drops the channels after the first `head_dim` of each head: out [heads, head_dim] from x [heads,
/// wide_dim].
void narrow_heads(bf16* out, int head_dim, const bf16* x, int wide_dim, std::size_t heads,
                  cudaStream_t stream);

/// A position-dependent factor of a token's queries: 1 + growth * log(1 + floor((position +
/// first) / period)).
struct RowGrowth {
  float growth = 0.0F;
  int period = 1;
  int first = 0;
};

/// Multiplies row i of x [rows, cols] by the factor of positions[i]; the backward is the same.
void grow_rows(bf16* x, int rows, int cols, const RowGrowth& growth, const std::int32_t* positions,
               cudaStream_t stream);

/// Backward of rope, in place: rotates the result's gradient back and multiplies it by the factor.
void rope_backward(bf16* dx, const HeadRows& shape, const float2* angles, int rotary,
                   cudaStream_t stream);
void rope_backward(float* dx, const HeadRows& shape, const float2* angles, int rotary,
                   cudaStream_t stream);

}  // namespace winnow::ops::cuda
