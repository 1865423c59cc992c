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

// Whether a layer takes what the one before it makes.
bool follows(const RowsLayer& layer, const RowsLayer& before) {
  const DeviceWeightView& made_by = before.linear.weight;
  switch (before.output) {
    case RowsLayer::Output::residual:
      return layer.input.x == before.residual.normed && layer.linear.weight.cols == made_by.rows &&
             (layer.input.parts == 0 || (layer.input.square_sums == before.residual.square_sums &&
                                         layer.input.parts == residual_parts(made_by.rows)));
    case RowsLayer::Output::silu:
      return layer.input.x == before.activated && layer.linear.weight.cols == made_by.rows / 2 &&
             layer.input.parts == 0;
    default:
      return false;
  }
}

std::size_t size_of(int n) {
  return static_cast<std::size_t>(n);
}

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

std::size_t row_bytes(int rows, int cols) {
  return rounded_up(size_of(rows) * size_of(cols) * sizeof(bf16));
}

std::size_t sum_bytes(int rows, int cols) {
  return rounded_up(size_of(rows) * size_of(residual_parts(cols)) * sizeof(float));
}

// Of up to `columns` values a row, cut into what each layer takes.
std::size_t most_handed_bytes(int columns) {
  constexpr int kMostPadding = 16 * kMostChainedLayers;
  const int padded = columns + kMostPadding;
  return row_bytes(kMostLinearRows, padded) + sum_bytes(kMostLinearRows, padded);
}

void place_what_is_handed_on(std::span<const RowsLayer> layers, RowsProgram& program) {
  std::size_t at = 0;
  const RowsLayer* residual = nullptr;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].output == RowsLayer::Output::residual) {
      require(residual == nullptr || residual->linear.weight.rows == layers[i].linear.weight.rows,
              "chained linear layers have one residual stream: of {} and {} channels",
              residual == nullptr ? 0 : residual->linear.weight.rows, layers[i].linear.weight.rows);
      residual = &layers[i];
    }
    if (i == 0) {
      continue;
    }
    require(follows(layers[i], layers[i - 1]),
            "chained linear layer {} does not take what the one before it makes", i);
    const int cols = layers[i].linear.weight.cols;
    program.rows_at[i] = static_cast<std::uint32_t>(at);
    at += row_bytes(program.rows, cols);
    program.sums_at[i] = static_cast<std::uint32_t>(at);
    at += sum_bytes(program.rows, cols);
  }
  require(at <= program.handed_bytes, "chained linear layers hand on {} bytes, room for {}", at,
          program.handed_bytes);
  program.handed_used = static_cast<std::uint32_t>(at);
}

}  // namespace

RowsScratch::RowsScratch(int columns)
    : arrived_(1),
      best_(size_of(winnow::cuda::multiprocessor_count()) * kMostLinearRows),
      turns_(size_of(winnow::cuda::multiprocessor_count())),
      handed_(2 * most_handed_bytes(columns)) {
  arrived_.fill(0);
  turns_.fill(0);
  handed_.fill(kNotYet & 0xFF);
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
                      .best = scratch.best(),
                      .turns = scratch.turns(),
                      .handed = scratch.handed(),
                      .handed_bytes = static_cast<std::uint32_t>(scratch.handed_bytes())};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    check_layer(layers[i], format, i + 1 == layers.size());
    program.layers[i] = layers[i];
  }
  place_what_is_handed_on(layers, program);
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
