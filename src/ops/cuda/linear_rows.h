// Linear layers of a few rows (decode) on the device, at the speed of its memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/device_weight.h"

namespace winnow::ops::cuda {

/// Rows that one call takes.
inline constexpr int kMostLinearRows = 16;

/// y = x weight^T + bias.
struct RowsLinear {
  DeviceWeightView weight;      // [N, K]
  const float* bias = nullptr;  // [N] or null
};

/// The input of a linear layer, [rows, K], 16-byte aligned. RMSNorm scales a row, which commutes
/// with the product, so who makes a row leaves it unscaled with its squares summed in `parts`
/// parts, and the product is multiplied by 1 / sqrt(sum / K + eps). No parts: a plain input.
struct RowsInput {
  const bf16* x = nullptr;
  int rows = 0;                        // at most kMostLinearRows
  const float* square_sums = nullptr;  // [parts, rows]
  int parts = 0;
  float eps = 0.0F;
};

/// The residual stream [rows, N] and what the layer after it reads: hidden * norm_weight, and the
/// sums of the squares of hidden.
struct ResidualRows {
  float* hidden = nullptr;
  const float* norm_weight = nullptr;  // [N]
  bf16* normed = nullptr;              // [rows, N]
  float* square_sums = nullptr;        // [linear_parts(), rows]
};

/// The token of each row: the largest logit, the lowest index of equals.
struct ArgmaxRows {
  std::int32_t* tokens = nullptr;        // [rows]
  std::uint64_t* scratch = nullptr;      // [linear_parts(), rows]
  std::uint32_t* blocks_done = nullptr;  // [1], zero before the first call; left zero
};

/// How kernels are put into a stream. With `overlap` (compute capability 9.0 and later) a kernel
/// begins to fetch weights while the one before it in the stream finishes, and reads and writes
/// everything else only when that one is done (programmatic dependent launch). Weights must not be
/// written by the kernels just before.
struct RowsLaunch {
  cudaStream_t stream = nullptr;
  bool overlap = false;
};

/// Blocks, and so parts of sums, of a call with this weight on the current device.
/// `paired`: of linear_rows_silu.
int linear_parts(const DeviceWeightView& weight, bool paired = false);

// Each reads the weight once. Sums are in float, in an order that depends on the weight's shape and
// the device alone: a row's result does not depend on the other rows of the call. Throws Error when
// shapes do not fit; K and pointers must be multiples of 8 elements and 16 bytes.

/// y [rows, N] = linear(x).
void linear_rows(const RowsLinear& linear, const RowsInput& x, float* y, RowsLaunch launch);

/// residual.hidden += linear(x), and what follows from it.
void linear_rows_residual(const RowsLinear& linear, const RowsInput& x,
                          const ResidualRows& residual, RowsLaunch launch);

/// y [rows, N / 2] = silu(gate) * up, where linear(x) = [gate, up].
void linear_rows_silu(const RowsLinear& linear, const RowsInput& x, bf16* y, RowsLaunch launch);

/// argmax.tokens = argmax(linear(x)); the logits [rows, N] too unless null.
void linear_rows_argmax(const RowsLinear& linear, const RowsInput& x, float* logits,
                        const ArgmaxRows& argmax, RowsLaunch launch);

/// residual.hidden[i] = table[tokens[i]] for any number of rows, and what follows from it, its
/// square sums in one part.
void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualRows& residual, RowsLaunch launch);

}  // namespace winnow::ops::cuda
