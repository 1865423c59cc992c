// Embeddings of layers and factors, against the CPU's ops.
#include "ops/activation.h"
#include "ops/cuda/general/activation.h"
#include "ops/cuda/general/elementwise.h"
#include "ops/cuda/training/training_layer_inputs.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/norm.h"

namespace winnow::ops::cuda::testing {
namespace {

using Floats = std::vector<float>;
using CudaLayerEnds = CudaTrainingOps;

constexpr std::size_t kRows = 19;
constexpr std::size_t kLayers = 3;
constexpr std::size_t kWidth = 40;

TEST_F(CudaLayerEnds, ScaleByANumberOfTheDevice) {
  constexpr std::size_t kAtOnce = 4096 * 256;  // that a grid has
  const Floats x = draw(kAtOnce + 1001, 1);
  const auto on_device = upload(x);
  const auto factor = upload(Floats{-1.75F});
  scale_by(on_device.data(), x.size(), factor.data(), nullptr);
  Floats expected = x;
  scale(matrix(expected, x.size()), -1.75F);
  expect_close(download(on_device), expected, kExact, "scaled");
}

void expect_inputs(std::size_t rows, std::size_t width) {
  constexpr std::size_t kVocab = 11;
  Floats projected = draw(rows * kLayers * width, 2);
  const Floats norm = draw(width, 3);
  const Floats table = draw_bf16(kVocab * kLayers * width, 4);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < rows; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i * 7 % kVocab));
  }
  const auto projected_device = upload(projected);
  const auto norm_device = upload(norm);
  const auto table_device = upload_bf16(table);
  const DeviceBuffer<std::int32_t> tokens_device{std::span<const std::int32_t>(tokens)};
  const auto out = poisoned<bf16>(projected.size());
  layer_inputs({.rows = static_cast<int>(rows),
                .layers = kLayers,
                .width = static_cast<int>(width),
                .projected = projected_device.data(),
                .norm = norm_device.data(),
                .norm_offset = 1.0F,
                .eps = 1e-3F,
                .table = table_device.data(),
                .tokens = tokens_device.data(),
                .embedding_scale = 3.0F,
                .scale = 0.5F},
               out.data(), nullptr);
  Floats expected(projected.size());
  rms_norm(matrix(expected, width), matrix(projected, width), norm, 1e-3F, 1.0F);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t cols = kLayers * width;
    const auto token = static_cast<std::size_t>(tokens[i / cols]);
    expected[i] = 0.5F * (expected[i] + 3.0F * table[token * cols + i % cols]);
  }
  expect_close(download(out), expected, kRounded, "inputs");
}

TEST_F(CudaLayerEnds, InputsOfAllLayers) {
  expect_inputs(kRows, kWidth);
  expect_inputs(11000, 8);  // more than a grid has at once
}

TEST_F(CudaLayerEnds, GatesOfFactors) {
  constexpr std::size_t kStride = kLayers * kWidth;
  for (const Activation kind :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu_squared}) {
    Floats gates = draw_bf16(kRows * kWidth, 5);
    const Floats all = draw_bf16(kRows * kStride, 6);
    Floats dout = draw_bf16(gates.size(), 7);
    Floats factors;
    for (std::size_t i = 0; i < gates.size(); ++i) {
      factors.push_back(all[i / kWidth * kStride + kWidth + i % kWidth]);
    }
    const auto gates_device = upload_bf16(gates);
    const auto product = upload_bf16(dout);
    const auto factors_device = upload_bf16(all);
    const auto dfactors = upload(Floats(all.size(), 7.0F));
    activate_multiply_rows_backward(kind, gates_device.data(), product.data(),
                                    {.factors = factors_device.data() + kWidth,
                                     .gradients = dfactors.data() + kWidth,
                                     .stride = kStride},
                                    kRows, kWidth, nullptr);
    const auto rows = [](Floats& x) { return matrix(x, kWidth); };
    Floats expected = gates;
    activate_multiply({kind}, rows(expected), rows(factors));
    expect_close(download(product), expected, kRounded, "products");
    Floats dgates(gates.size());
    Floats expected_factors(gates.size());
    activate_multiply_backward({kind}, rows(dgates), rows(expected_factors), rows(dout),
                               rows(gates), rows(factors));
    expect_close(download(gates_device), dgates, kRounded, "gates");
    const Floats found = download(dfactors);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t column = i % kStride;
      const bool own = column >= kWidth && column < 2 * kWidth;
      const float wanted = own ? expected_factors[i / kStride * kWidth + column - kWidth] : 7.0F;
      EXPECT_NEAR(found[i], wanted, 1e-5F + 1e-5F * std::abs(wanted));
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
