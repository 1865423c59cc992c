#include "ops/cuda/linear/skinny_gemm.h"

#include <algorithm>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/linear/skinny_gemm_kernels.h"

namespace winnow::ops::cuda {
namespace {

void check_layer(const SkinnyGemm& layer, DeviceWeightFormat format, bool last) {
  const DeviceWeightView& weight = layer.linear.weight;
  require(weight.format == format, "chained linear layers must agree in format: {} and {}",
          format_name(format), format_name(weight.format));
  require(weight.rows > 0 && weight.cols > 0 && weight.cols % 8 == 0,
          "a linear layer of few rows needs a multiple of 8 columns: [{}, {}]", weight.rows,
          weight.cols);
  require(weight.paired == (layer.epilogue == SkinnyGemm::Epilogue::silu),
          "a gated layer needs a paired weight, and no other layer does");
  require(layer.epilogue != SkinnyGemm::Epilogue::argmax || last,
          "tokens are chosen by the last of chained layers");
}

// Whether a layer's input is the output of the layer before it.
bool follows(const SkinnyGemm& layer, const SkinnyGemm& before) {
  const DeviceWeightView& made_by = before.linear.weight;
  switch (before.epilogue) {
    case SkinnyGemm::Epilogue::residual:
      return layer.input.x == before.residual.normed && layer.linear.weight.cols == made_by.rows &&
             (layer.input.parts == 0 || (layer.input.square_sums == before.residual.square_sums &&
                                         layer.input.parts == residual_parts(made_by.rows)));
    case SkinnyGemm::Epilogue::silu:
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

// The memory for up to `columns` published values per row, split among layers, in any format.
std::size_t most_published_bytes(int columns) {
  std::size_t most = 0;
  for (const DeviceWeightFormat format : {DeviceWeightFormat::bf16, DeviceWeightFormat::int4}) {
    const int padded = columns + kMostChainedGemms * chunk_columns(format);
    most = std::max(most, published_row_bytes(kMostSkinnyRows, padded, format) +
                              sum_bytes(kMostSkinnyRows, padded));
  }
  return most;
}

}  // namespace

PublishedLayout lay_out_published(std::span<const SkinnyGemm> layers, int rows,
                                  std::size_t part_bytes) {
  PublishedLayout places;
  std::size_t at = 0;
  const SkinnyGemm* residual = nullptr;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const SkinnyGemm& layer = layers[i];
    if (layer.epilogue == SkinnyGemm::Epilogue::residual) {
      require(residual == nullptr || residual->linear.weight.rows == layer.linear.weight.rows,
              "chained linear layers have one residual stream: of {} and {} channels",
              residual == nullptr ? 0 : residual->linear.weight.rows, layer.linear.weight.rows);
      residual = &layer;
    }
    places.rows.push_back(static_cast<std::uint32_t>(at));
    const DeviceWeightView& weight = layer.linear.weight;
    at += i > 0 ? published_row_bytes(rows, weight.cols, weight.format) : 0;
    places.sums.push_back(static_cast<std::uint32_t>(at));
    if (i > 0 && takes_attention(layer)) {
      const SkinnyGemm& before = layers[i - 1];
      require(before.epilogue == SkinnyGemm::Epilogue::store,
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

void check_layers(std::span<const SkinnyGemm> layers) {
  for (const SkinnyGemm& layer : layers) {
    check_layer(layer, layers[0].linear.weight.format, &layer == &layers.back());
  }
}

void check_room(const PublishedLayout& places, const SkinnyScratch& scratch) {
  require(places.bytes <= scratch.published_bytes(),
          "chained linear layers publish {} bytes, room for {}", places.bytes,
          scratch.published_bytes());
}

int most_skinny_rows() {
  return winnow::cuda::most_shared_memory() >= kSharedMemoryOfMostRows ? kMostSkinnyRows
                                                                       : kRowsOfLittleMemory;
}

void check_stages(int stages, int rows, int bytes) {
  require(stages > 0,
          "{} rows leave no room for weights in the {} bytes of a block's shared memory", rows,
          bytes);
}

SkinnyScratch::SkinnyScratch(int columns) : SkinnyScratch(most_published_bytes(columns)) {}

SkinnyScratch::SkinnyScratch(std::size_t published_bytes)
    : arrived_(1),
      best_(size_of(winnow::cuda::multiprocessor_count()) * kMostSkinnyRows),
      phases_(size_of(winnow::cuda::multiprocessor_count())),
      published_(2 * rounded_up(published_bytes)) {
  arrived_.fill(0);
  phases_.fill(0);
  published_.fill(kUnpublished & 0xFF);
  winnow::cuda::check(cudaDeviceSynchronize(), "clear scratch");
}

SkinnyGemm stored(const GemmWeight& linear, const SkinnyInput& x, float* y) {
  SkinnyGemm layer{linear, x};
  layer.values = y;
  return layer;
}

SkinnyGemm added(const GemmWeight& linear, const SkinnyInput& x, const ResidualStream& residual,
                 const RankedSum& ranks) {
  SkinnyGemm layer{linear, x, SkinnyGemm::Epilogue::residual};
  layer.residual = residual;
  layer.ranks = ranks;
  return layer;
}

SkinnyGemm gated(const GemmWeight& linear, const SkinnyInput& x, bf16* y) {
  SkinnyGemm layer{linear, x, SkinnyGemm::Epilogue::silu};
  layer.activated = y;
  return layer;
}

SkinnyGemm chosen(const GemmWeight& linear, const SkinnyInput& x, std::int32_t* tokens,
                  float* logits) {
  SkinnyGemm layer{linear, x, SkinnyGemm::Epilogue::argmax};
  layer.values = logits;
  layer.tokens = tokens;
  return layer;
}

void skinny_gemm(std::span<const SkinnyGemm> layers, int rows, const SkinnyScratch& scratch,
                 const SkinnyLaunch& launch) {
  require(rows >= 0 && rows <= most_skinny_rows(),
          "a linear layer of few rows takes at most {}, not {}", most_skinny_rows(), rows);
  require(!layers.empty() && layers.size() <= kMostChainedGemms,
          "{} chained linear layers, expected 1 to {}", layers.size(), kMostChainedGemms);
  if (rows == 0) {
    return;
  }
  require(std::ranges::none_of(layers, takes_attention),
          "a linear layer of few rows needs an input");
  SkinnyProgram program;
  fill(program, layers, rows, scratch, 0);
  switch (layers[0].linear.weight.format) {
    case DeviceWeightFormat::bf16:
      return launch_skinny_gemm_bf16(program, launch);
    case DeviceWeightFormat::fp8:
      return launch_skinny_gemm_fp8(program, launch);
    case DeviceWeightFormat::int8:
      return launch_skinny_gemm_int8(program, launch);
    case DeviceWeightFormat::int4:
      return launch_skinny_gemm_int4(program, launch);
  }
}

void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualStream& residual, const SkinnyLaunch& launch, int first_token) {
  require(table.cols % 8 == 0, "an embedding needs a multiple of 8 columns, not {}", table.cols);
  if (rows > 0) {
    launch_embed_rows(table, tokens, rows, residual, launch, first_token);
  }
}

}  // namespace winnow::ops::cuda
