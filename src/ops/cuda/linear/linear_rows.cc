#include "ops/cuda/linear/linear_rows.h"

#include <algorithm>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/linear/linear_rows_kernels.h"

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

std::size_t value_bytes(int rows, int cols) {
  return rounded_up(size_of(rows) * size_of(cols) * sizeof(float));
}

std::size_t sum_bytes(int rows, int cols) {
  return value_bytes(rows, residual_parts(cols));
}

// Of up to `columns` values a row, cut into what each layer takes, in any format.
std::size_t most_handed_bytes(int columns) {
  std::size_t most = 0;
  for (const DeviceWeightFormat format : {DeviceWeightFormat::bf16, DeviceWeightFormat::int4}) {
    const int padded = columns + kMostChainedLayers * chunk_columns(format);
    most = std::max(most, handed_row_bytes(kMostLinearRows, padded, format) +
                              sum_bytes(kMostLinearRows, padded));
  }
  return most;
}

}  // namespace

HandedPlaces place_what_is_handed_on(std::span<const RowsLayer> layers, int rows,
                                     std::size_t part_bytes) {
  HandedPlaces places;
  std::size_t at = 0;
  const RowsLayer* residual = nullptr;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const RowsLayer& layer = layers[i];
    if (layer.output == RowsLayer::Output::residual) {
      require(residual == nullptr || residual->linear.weight.rows == layer.linear.weight.rows,
              "chained linear layers have one residual stream: of {} and {} channels",
              residual == nullptr ? 0 : residual->linear.weight.rows, layer.linear.weight.rows);
      residual = &layer;
    }
    places.rows.push_back(static_cast<std::uint32_t>(at));
    const DeviceWeightView& weight = layer.linear.weight;
    at += i > 0 ? handed_row_bytes(rows, weight.cols, weight.format) : 0;
    places.sums.push_back(static_cast<std::uint32_t>(at));
    if (i > 0 && takes_attention(layer)) {
      const RowsLayer& before = layers[i - 1];
      require(before.output == RowsLayer::Output::store,
              "attention before chained linear layer {} needs what the one before it stores", i);
      at += value_bytes(rows, before.linear.weight.rows) + rounded_up(part_bytes);
    } else if (i > 0) {
      require(follows(layer, layers[i - 1]),
              "chained linear layer {} does not take what the one before it makes", i);
      at += sum_bytes(rows, layer.linear.weight.cols);
    }
  }
  places.bytes = at;
  return places;
}

void check_layers(std::span<const RowsLayer> layers) {
  for (const RowsLayer& layer : layers) {
    check_layer(layer, layers[0].linear.weight.format, &layer == &layers.back());
  }
}

void check_room(const HandedPlaces& places, const RowsScratch& scratch) {
  require(places.bytes <= scratch.handed_bytes(),
          "chained linear layers hand on {} bytes, room for {}", places.bytes,
          scratch.handed_bytes());
}

int most_linear_rows() {
  return winnow::cuda::most_shared_memory() >= kSharedMemoryOfMostRows ? kMostLinearRows
                                                                       : kRowsOfLittleMemory;
}

void check_stages(int stages, int rows, int bytes) {
  require(stages > 0,
          "{} rows leave no room for weights in the {} bytes of a block's shared memory", rows,
          bytes);
}

RowsScratch::RowsScratch(int columns) : RowsScratch(most_handed_bytes(columns)) {}

RowsScratch::RowsScratch(std::size_t handed_bytes)
    : arrived_(1),
      best_(size_of(winnow::cuda::multiprocessor_count()) * kMostLinearRows),
      turns_(size_of(winnow::cuda::multiprocessor_count())),
      handed_(2 * rounded_up(handed_bytes)) {
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
  require(rows >= 0 && rows <= most_linear_rows(),
          "a linear layer of few rows takes at most {}, not {}", most_linear_rows(), rows);
  require(!layers.empty() && layers.size() <= kMostChainedLayers,
          "{} chained linear layers, expected 1 to {}", layers.size(), kMostChainedLayers);
  if (rows == 0) {
    return;
  }
  require(std::ranges::none_of(layers, takes_attention),
          "a linear layer of few rows needs an input");
  RowsProgram program;
  fill(program, layers, rows, scratch, 0);
  switch (layers[0].linear.weight.format) {
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
