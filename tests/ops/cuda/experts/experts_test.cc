// Experts on the device against the CPU's, with weights in every format.
#include "ops/cuda/experts/experts.h"

#include <cmath>
#include <numeric>

#include "base/cuda/on_device.h"
#include "ops/cuda/experts/experts_layer.h"
#include "ops/cuda/experts/experts_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

// x / sqrt(mean(x^2) + eps) * weight for each row.
std::vector<float> norm(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
  const std::size_t cols = weight.size();
  std::vector<float> result;
  for (std::size_t first = 0; first < x.size(); first += cols) {
    const double squares = std::inner_product(&x[first], &x[first] + cols, &x[first], 0.0);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (std::size_t i = 0; i < cols; ++i) {
      result.push_back(static_cast<float>(x[first + i] * scale * weight[i]));
    }
  }
  return result;
}

TEST_F(CudaExperts, NormAndRoutesOfAFewRows) {
  constexpr float kEps = 1e-5F;
  for (const Router& router : kRouters) {
    const auto count = static_cast<std::size_t>(router.count);
    const auto active = static_cast<std::size_t>(router.active);
    for (const std::size_t cols : {64, 520, 2048}) {
      ASSERT_TRUE(takes_norm_and_route(router, static_cast<int>(cols)));
      RoutesMemory memory;
      memory.reserve(router, kMostRoutedRows);
      const auto weight = draw_bf16(count * cols, 11, 0.1);
      const auto device_weight = upload_bf16(weight);
      const auto bias = draw(count, 12);
      const auto device_bias = upload(bias);
      const auto norm_weight = draw(cols, 13);
      const auto device_norm = upload(norm_weight);
      for (const std::size_t rows : {1, 2, 17, 64}) {
        const auto hidden = draw(rows * cols, 14 + rows);
        const auto device_hidden = upload(hidden);
        const auto normed = poisoned<bf16>(rows * cols);
        norm_and_route(router, memory.view(),
                       {.hidden = device_hidden.data(),
                        .norm_weight = device_norm.data(),
                        .eps = kEps,
                        .cols = static_cast<int>(cols),
                        .weight = device_weight.data(),
                        .bias = device_bias.data()},
                       normed.data(), static_cast<int>(rows), nullptr);
        winnow::cuda::check(cudaDeviceSynchronize(), "wait");
        const auto found = download(normed);
        expect_close(found, norm(hidden, norm_weight, kEps), 1e-2, "normed");

        auto logits = download_floats(memory.view().logits, rows * count);
        std::vector<float> expected;
        for (std::size_t t = 0; t < rows; ++t) {
          for (std::size_t e = 0; e < count; ++e) {
            expected.push_back(static_cast<float>(
                bias[e] + std::inner_product(&found[t * cols], &found[t * cols] + cols,
                                             &weight[e * cols], 0.0)));
          }
        }
        expect_close(logits, expected, 1e-4, "logits");

        std::vector<std::int32_t> experts(rows * active);
        std::vector<float> weights(rows * active);
        ops::route(router, {{experts.data(), rows, active}, {weights.data(), rows, active}},
                   {logits.data(), rows, count});
        EXPECT_EQ(download_ints(memory.view().experts, experts.size()), experts);
        expect_close(download_floats(memory.view().weights, weights.size()), weights, 1e-5,
                     "weights");
        expect_ordered(memory.view(), experts, count);
      }
    }
  }
}

TEST_F(CudaExperts, TheResidualStreamReceivesTheSameAsRows) {
  constexpr std::size_t kCols = 520;
  constexpr int kRows = 9;
  const Router& router = kRouters[3];
  RoutesMemory memory;
  memory.reserve(router, kRows);
  const auto logits = upload(draw(kRows * static_cast<std::size_t>(router.count), 1));
  route(router, memory.view(), logits.data(), router.count, nullptr, kRows, nullptr);
  const auto y = upload_bf16(draw_bf16(kRows * static_cast<std::size_t>(router.active) * kCols, 2));
  const auto before = draw(kRows * kCols, 3);
  const auto norm_weight = draw(kCols, 4);
  for (const bool weighted : {false, true}) {
    const auto rows = upload(before);
    add_expert_outputs(router, rows.data(), y.data(), memory.view(), weighted, kRows, kCols,
                       nullptr);
    const auto expected = download(rows);
    const auto hidden = upload(before);
    const auto device_norm = upload(norm_weight);
    const auto normed = poisoned<bf16>(kRows * kCols);
    const auto squares = poisoned<float>(kRows * residual_parts(kCols));
    add_expert_outputs(router, {hidden.data(), device_norm.data(), normed.data(), squares.data()},
                       y.data(), memory.view(), weighted, kRows, kCols, nullptr);
    EXPECT_EQ(download(hidden), expected);
    std::vector<float> products;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      products.push_back(expected[i] * norm_weight[i % kCols]);
    }
    expect_close(download(normed), products, 1e-2, "normed");
    expect_close(download(squares), square_sums(expected, kCols), 1e-5, "square sums");
  }
}

std::vector<float> on_device(const Layer& layer, const std::vector<float>& x,
                             const std::vector<float>& before) {
  const int inner = static_cast<int>(layer.inner);
  const int rows = static_cast<int>(x.size() / Layer::kWidth);
  const auto pairs = static_cast<std::size_t>(rows) * static_cast<std::size_t>(layer.router.active);
  RoutesMemory routes;
  routes.reserve(layer.router, rows, Layer::kWidth, inner);
  const auto device_logits = upload(router_logits(layer, x));
  route(layer.router, routes.view(), device_logits.data(), layer.router.count, nullptr, rows,
        nullptr);
  const auto device_x = upload_bf16(x);
  const auto out = upload(before);
  const auto gate_up_bias = upload(layer.gate_up_bias);
  const auto down_bias = upload(layer.down_bias);
  const auto products = poisoned<bf16>(pairs * 2 * layer.inner);
  const auto activated = poisoned<bf16>(pairs * layer.inner);
  const auto y = poisoned<bf16>(pairs * Layer::kWidth);
  multiply_experts(layer.router, y.data(), device_x.data(),
                   network_of(layer, gate_up_bias, down_bias, {products.data(), activated.data()}),
                   routes.view(), rows, nullptr);
  add_expert_outputs(layer.router, out.data(), y.data(), routes.view(), !layer.scales_input, rows,
                     Layer::kWidth, nullptr);
  return download(out);
}

void expect_as_on_the_cpu(const Layer& layer, double tolerance,
                          const std::vector<std::size_t>& rows = {1, 3, 16, 65, 700}) {
  for (const std::size_t tokens : rows) {
    auto x = draw_bf16(tokens * Layer::kWidth, 7);
    const auto before = draw(x.size(), 8);
    const auto expected = on_cpu(layer, x, before);
    const auto found = on_device(layer, x, before);
    expect_close(found, expected, tolerance, "out");
    EXPECT_EQ(found, on_device(layer, x, before)) << "not the same bits again";
  }
}

TEST_F(CudaExperts, GiveWhatTheCpuGives) {
  for (const auto& [source, format, tolerance] : kFormats) {
    SCOPED_TRACE(format_name(format));
    expect_as_on_the_cpu({kRouters[0], source, format, {}, false}, tolerance);
    expect_as_on_the_cpu({kRouters[1], source, format, {Activation::gelu_tanh}, false}, tolerance);
    expect_as_on_the_cpu({kRouters[2], source, format, {Activation::silu, 7.0F}, false}, tolerance);
    expect_as_on_the_cpu({kRouters[4], source, format, {}, true}, tolerance);
  }
}

// Two units of gates per group, the second partly empty, and columns that are padded. No stage of a
// block's ring is filled twice, so that racecheck, which takes a refill for a race, reports
// nothing.
TEST_F(CudaExperts, OfGroupsOfTokensGiveWhatTheCpuGives) {
  constexpr std::size_t kInner = 224;
  for (const auto& [source, format, tolerance] : kFormats) {
    SCOPED_TRACE(format_name(format));
    expect_as_on_the_cpu({kRouters[0], source, format, {}, false, kInner}, tolerance, {100, 900});
    expect_as_on_the_cpu({kRouters[4], source, format, {Activation::silu, 7.0F}, true, kInner},
                         tolerance, {600});
  }
}

// More units than a device has multiprocessors.
TEST_F(CudaExperts, OfManyGroupsOfTokensGiveWhatTheCpuGives) {
  constexpr std::size_t kInner = 288;
  for (const auto& [source, format, tolerance] : kFormats) {
    SCOPED_TRACE(format_name(format));
    expect_as_on_the_cpu({kRouters[3], source, format, {}, false, kInner}, tolerance, {2400});
  }
}

TEST_F(CudaExperts, AGateOfASharedOne) {
  constexpr std::size_t kCols = 520;
  auto x = draw_bf16(9 * kCols, 1);
  auto y = draw(9 * kCols, 2);
  const auto gate = draw(kCols, 3, 0.05);
  const auto before = draw(9 * kCols, 4);
  for (const bool gated : {false, true}) {
    auto expected = before;
    for (std::size_t t = 0; t < 9; ++t) {
      const double product = std::inner_product(gate.begin(), gate.end(), &x[t * kCols], 0.0);
      for (std::size_t i = 0; i < kCols; ++i) {
        const double factor = gated ? 1.0 / (1.0 + std::exp(-product)) : 1.0;
        expected[t * kCols + i] += static_cast<float>(factor * y[t * kCols + i]);
      }
    }
    const auto out = upload(before);
    const auto device_gate = upload(gate);
    const auto device_x = upload_bf16(x);
    const auto device_y = upload(y);
    add_gated(out.data(), device_y.data(), device_x.data(), gated ? device_gate.data() : nullptr, 9,
              kCols, nullptr);
    expect_close(download(out), expected, kExact, "out");
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
