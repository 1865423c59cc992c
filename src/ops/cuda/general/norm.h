// RMSNorm of every kind and LayerNorm on the device; training/training_norm.h has the backward.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// The weight of a norm: rows are multiplied by offset + weight [cols]. The offset is 1 for weights
/// stored as their difference from 1 (Gemma).
struct NormWeight {
  const float* weight = nullptr;
  float offset = 0.0F;
};

/// out = x / sqrt(mean(x^2) + eps) * (offset + weight) for each row of x [rows, cols]; cols is a
/// multiple of 8. out may be x.
void rms_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);
void rms_norm(float* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);
void rms_norm(bf16* out, const bf16* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);

/// residual += factor * the same norm, in float: for norms after a layer's product.
void add_rms_norm(float* residual, const bf16* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream);
void add_rms_norm(float* residual, const float* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream);

/// LayerNorm: out = (x - mean(x)) / sqrt(variance(x) + eps) * (offset + weight) + bias for each row
/// of x [rows, cols]; `bias` [cols] or null, cols is a multiple of 8.
void layer_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight,
                const float* bias, float eps, cudaStream_t stream);

/// Rows of q, k and v [rows, query_width + 2 * key_width], as their product stores them, all widths
/// multiples of 8, and norms over all of a token's queries and over all of its keys.
struct WholeNorms {
  int rows = 0;
  int query_width = 0;
  int key_width = 0;
  const float* bias = nullptr;        // per row, or null
  const float* query_norm = nullptr;  // [query_width]
  const float* key_norm = nullptr;    // [key_width]
  float eps = 0.0F;
  /// Of heads that several ranks have parts of: what whole_squares() gives, added up over the
  /// ranks.
  const float* squares = nullptr;
};

/// squares [rows + 1, 2] = the sums of squares of each row's queries and of its keys, with bias; at
/// last the numbers of channels in a sum. Without `counts_keys` keys count as zeros and no
/// channels.
void whole_squares(const WholeNorms& norms, bool counts_keys, float* squares, const bf16* rows,
                   cudaStream_t stream);
void whole_squares(const WholeNorms& norms, bool counts_keys, float* squares, const float* rows,
                   cudaStream_t stream);

/// out = the rows with their bias, queries and keys normalised. out may be rows.
void norm_whole(const WholeNorms& norms, bf16* out, const bf16* rows, cudaStream_t stream);
void norm_whole(const WholeNorms& norms, float* out, const float* rows, cudaStream_t stream);

/// Backward of norm_whole, in place: converts `gradient` from that of the result to that of `rows`.
/// Adds the gradients of the norms' weights to dquery_norm and dkey_norm (null: not computed), as
/// sums over rows in any order.
void norm_whole_backward(const WholeNorms& norms, bf16* gradient, const bf16* rows,
                         float* dquery_norm, float* dkey_norm, cudaStream_t stream);

}  // namespace winnow::ops::cuda
