#include "ops/cuda/linear_rows.h"

#include "base/error.h"
#include "ops/cuda/linear_rows_kernels.h"

namespace winnow::ops::cuda {
namespace {

void check_layer(const RowsLayer& layer, DeviceWeightFormat format, bool last) {
  const DeviceWeightView& weight = layer.linear.weight;
  require(weight.format == format, "chained linear layers must agree in format: {} and {}",
          format_name(format), format_name(weight.format));
  require(weight.rows > 0 && weight.cols > 0 && weight.cols % 8 == 0,
          "a linear layer of few rows needs a multiple of 8 columns: [{}, {}]", weight.rows,
          weight.cols);
  require(weight.paired == (layer.output == RowsLayer::Output::silu),
          "a gated layer needs a paired weight, and no other layer does");
  require(layer.output != RowsLayer::Output::argmax || last,
          "tokens are chosen by the last of chained layers");
}

}  // namespace

RowsScratch::RowsScratch()
    : arrived_(1),
      best_(static_cast<std::size_t>(winnow::cuda::multiprocessor_count()) * kMostLinearRows) {
  arrived_.fill(0);
  winnow::cuda::check(cudaDeviceSynchronize(), "clear scratch");
}

RowsLayer stored(const RowsLinear& linear, const RowsInput& x, float* y) {
  RowsLayer layer{linear, x};
  layer.values = y;
  return layer;
}

RowsLayer added(const RowsLinear& linear, const RowsInput& x, const ResidualRows& residual) {
  RowsLayer layer{linear, x, RowsLayer::Output::residual};
  layer.residual = residual;
  return layer;
}

RowsLayer gated(const RowsLinear& linear, const RowsInput& x, bf16* y) {
  RowsLayer layer{linear, x, RowsLayer::Output::silu};
  layer.activated = y;
  return layer;
}

RowsLayer chosen(const RowsLinear& linear, const RowsInput& x, std::int32_t* tokens,
                 float* logits) {
  RowsLayer layer{linear, x, RowsLayer::Output::argmax};
  layer.values = logits;
  layer.tokens = tokens;
  return layer;
}

void linear_rows(std::span<const RowsLayer> layers, int rows, const RowsScratch& scratch,
                 const RowsLaunch& launch) {
  require(rows >= 0 && rows <= kMostLinearRows,
          "a linear layer of few rows takes at most {}, not {}", kMostLinearRows, rows);
  require(!layers.empty() && layers.size() <= kMostChainedLayers,
          "{} chained linear layers, expected 1 to {}", layers.size(), kMostChainedLayers);
  if (rows == 0) {
    return;
  }
  const DeviceWeightFormat format = layers[0].linear.weight.format;
  RowsProgram program{.rows = rows,
                      .count = static_cast<int>(layers.size()),
                      .blocks = winnow::cuda::multiprocessor_count(),
                      .arrived = scratch.arrived(),
                      .best = scratch.best()};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    check_layer(layers[i], format, i + 1 == layers.size());
    program.layers[i] = layers[i];
  }
  switch (format) {
    case DeviceWeightFormat::bf16:
      return launch_linear_rows_bf16(program, launch);
    case DeviceWeightFormat::fp8:
      return launch_linear_rows_fp8(program, launch);
    case DeviceWeightFormat::int8:
      return launch_linear_rows_int8(program, launch);
    case DeviceWeightFormat::int4:
      return launch_linear_rows_int4(program, launch);
  }
}

void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualRows& residual, const RowsLaunch& launch) {
  require(table.cols % 8 == 0, "an embedding needs a multiple of 8 columns, not {}", table.cols);
  if (rows > 0) {
    launch_embed_rows(table, tokens, rows, residual, launch);
  }
}

}  // namespace winnow::ops::cuda
