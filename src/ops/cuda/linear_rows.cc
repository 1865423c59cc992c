#include "ops/cuda/linear_rows.h"

#include "base/error.h"
#include "ops/cuda/linear_rows_kernels.h"

namespace winnow::ops::cuda {
namespace {

int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

/// The tile that gives the busiest multiprocessor the fewest rows; of equals the largest, which
/// reads the activations least often. A paired tile has as many rows of each half, whole tiles
/// of 8.
RowsTiling tiling_of(const DeviceWeightView& weight, bool paired) {
  const int processors = winnow::cuda::multiprocessor_count();
  RowsTiling best{};
  int least = 0;
  for (const int rows : {32, 24, 16}) {
    if (paired && rows == 24) {
      continue;
    }
    const int tiles = paired ? divide_up(weight.rows / 2, rows / 2) : divide_up(weight.rows, rows);
    const int turns = divide_up(tiles, processors);
    if (best.rows == 0 || turns * rows < least) {
      least = turns * rows;
      best = {rows, tiles, divide_up(tiles, turns)};
    }
  }
  return best;
}

void launch(const RowsLinear& linear, const RowsInput& x, RowsArguments arguments,
            RowsLaunch launch) {
  const DeviceWeightView& weight = linear.weight;
  require(x.rows >= 0 && x.rows <= kMostLinearRows,
          "a linear layer of few rows takes at most {}, not {}", kMostLinearRows, x.rows);
  require(weight.cols % 8 == 0, "a linear layer of few rows needs a multiple of 8 columns, not {}",
          weight.cols);
  if (x.rows == 0 || weight.rows == 0) {
    return;
  }
  const bool paired = arguments.epilogue == RowsEpilogue::silu;
  require(!paired || weight.rows % 2 == 0, "gate and up must have as many rows: {} in all",
          weight.rows);
  arguments.weight = weight;
  arguments.bias = linear.bias;
  arguments.input = x;
  arguments.tiling = tiling_of(weight, paired);
  switch (weight.format) {
    case DeviceWeightFormat::bf16:
      return launch_linear_rows_bf16(arguments, launch);
    case DeviceWeightFormat::fp8:
      return launch_linear_rows_fp8(arguments, launch);
    case DeviceWeightFormat::int8:
      return launch_linear_rows_int8(arguments, launch);
    case DeviceWeightFormat::int4:
      return launch_linear_rows_int4(arguments, launch);
  }
}

}  // namespace

int linear_parts(const DeviceWeightView& weight, bool paired) {
  return tiling_of(weight, paired).blocks;
}

void linear_rows(const RowsLinear& linear, const RowsInput& x, float* y, RowsLaunch options) {
  RowsArguments arguments{};
  arguments.epilogue = RowsEpilogue::store;
  arguments.out = y;
  launch(linear, x, arguments, options);
}

void linear_rows_residual(const RowsLinear& linear, const RowsInput& x,
                          const ResidualRows& residual, RowsLaunch options) {
  RowsArguments arguments{};
  arguments.epilogue = RowsEpilogue::residual;
  arguments.residual = residual;
  launch(linear, x, arguments, options);
}

void linear_rows_silu(const RowsLinear& linear, const RowsInput& x, bf16* y, RowsLaunch options) {
  RowsArguments arguments{};
  arguments.epilogue = RowsEpilogue::silu;
  arguments.activated = y;
  launch(linear, x, arguments, options);
}

void linear_rows_argmax(const RowsLinear& linear, const RowsInput& x, float* logits,
                        const ArgmaxRows& argmax, RowsLaunch options) {
  RowsArguments arguments{};
  arguments.epilogue = RowsEpilogue::argmax;
  arguments.out = logits;
  arguments.argmax = argmax;
  launch(linear, x, arguments, options);
}

void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualRows& residual, RowsLaunch options) {
  require(table.cols % 8 == 0, "an embedding needs a multiple of 8 columns, not {}", table.cols);
  if (rows > 0) {
    launch_embed_rows(table, tokens, rows, residual, options);
  }
}

}  // namespace winnow::ops::cuda
