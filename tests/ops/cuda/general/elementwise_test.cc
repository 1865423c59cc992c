// Norms with an offset, multipliers, soft caps and partial rotary embedding on the device, against
// the CPU's ops or their definitions in double.
#include "ops/cuda/general/elementwise.h"

#include <cmath>
#include <functional>

#include "ops/cuda/general/norm.h"
#include "ops/cuda/rope.h"
#include "ops/cuda/training/training_norm.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace winnow::ops::cuda::testing {
namespace {

using CudaElementwise = CudaTrainingOps;

constexpr std::size_t kElementRows = 13;
constexpr float kEps = 1e-5F;

/// A row's weight in the form of the CPU's norm.
std::vector<float> with_offset(std::vector<float> weight, float offset) {
  for (float& w : weight) {
    w += offset;
  }
  return weight;
}

TEST_F(CudaElementwise, Norm) {
  for (const std::size_t cols : {8U, 24U, 4104U}) {
    const int rows = static_cast<int>(kElementRows);
    const int width = static_cast<int>(cols);
    auto x = draw_bf16(kElementRows * cols, 1, 3.0);
    const auto weight = draw(cols, 2, 0.3);
    for (const float offset : {0.0F, 1.0F}) {
      std::vector<float> expected(x.size());
      ops::rms_norm(matrix(expected, cols), matrix(x, cols), with_offset(weight, offset), kEps);
      const auto weights = upload(weight);
      const NormWeight how{weights.data(), offset};
      const auto from = upload(x);
      const auto from_bf16 = upload_bf16(x);
      const auto out = poisoned<float>(x.size());
      const auto rounded = poisoned<bf16>(x.size());
      rms_norm(out.data(), from.data(), rows, width, how, kEps, nullptr);
      expect_close(download(out), expected, kExact, "float");
      rms_norm(rounded.data(), from.data(), rows, width, how, kEps, nullptr);
      expect_close(download(rounded), expected, kRounded, "float to bf16");
      rms_norm(rounded.data(), from_bf16.data(), rows, width, how, kEps, nullptr);
      expect_close(download(rounded), expected, kRounded, "bf16");

      const auto before = draw(x.size(), 3);
      std::vector<float> sum = before;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += 0.25F * expected[i];
      }
      const auto residual = upload(before);
      add_rms_norm(residual.data(), from_bf16.data(), rows, width, how, kEps, 0.25F, nullptr);
      expect_close(download(residual), sum, kExact, "added, of bf16");
      const auto other = upload(before);
      add_rms_norm(other.data(), from.data(), rows, width, how, kEps, 0.25F, nullptr);
      expect_close(download(other), sum, kExact, "added, of float");
      rms_norm(from.data(), from.data(), rows, width, how, kEps, nullptr);
      expect_close(download(from), expected, kExact, "in place");
    }
  }
}

TEST_F(CudaElementwise, LayerNorm) {
  for (const std::size_t cols : {8U, 24U, 4104U}) {
    const int rows = static_cast<int>(kElementRows);
    auto x = draw(kElementRows * cols, 1, 3.0);
    for (float& value : x) {
      value += 10.0F;  // a mean much larger than the deviations
    }
    const auto weight = draw(cols, 2, 0.3);
    const auto bias = draw(cols, 3);
    for (const float offset : {0.0F, 1.0F}) {
      for (const bool biased : {false, true}) {
        std::vector<float> expected(x.size());
        ops::layer_norm(matrix(expected, cols), matrix(x, cols), with_offset(weight, offset),
                        biased ? std::span<const float>(bias) : std::span<const float>(), kEps);
        const auto weights = upload(weight);
        const auto biases = upload(bias);
        const auto from = upload(x);
        const auto out = poisoned<bf16>(x.size());
        layer_norm(out.data(), from.data(), rows, static_cast<int>(cols), {weights.data(), offset},
                   biased ? biases.data() : nullptr, kEps, nullptr);
        expect_close(download(out), expected, kRounded, biased ? "with bias" : "without bias");
      }
    }
  }
}

TEST_F(CudaElementwise, NormBackward) {
  constexpr float kOffset = 1.0F;
  for (const std::size_t cols : {24U, 2048U}) {
    const int rows = static_cast<int>(kElementRows);
    const int width = static_cast<int>(cols);
    auto x = draw_bf16(kElementRows * cols, 1, 3.0);
    auto dout = draw_bf16(x.size(), 2);
    const auto weight = draw(cols, 3, 0.3);
    auto dx = draw(x.size(), 4);
    std::vector<float> dweight(cols, 0.5F);
    const auto dx_device = upload(dx);
    const auto dx_other = upload(dx);
    const auto dweight_device = upload(dweight);
    const auto dweight_other = upload(dweight);
    ops::rms_norm_backward(workspace_, matrix(dx, cols), dweight, matrix(dout, cols),
                           matrix(x, cols), with_offset(weight, kOffset), kEps);
    const auto weights = upload(weight);
    const TrainingNorm norm{.weight = weights.data(), .eps = kEps, .offset = kOffset};
    norm_rows_backward({dx_device.data(), true, nullptr, dweight_device.data()},
                       upload_bf16(dout).data(), upload(x).data(), rows, width, norm, nullptr);
    expect_close(download(dx_device), dx, kExact, "dx");
    expect_close(download(dweight_device), dweight, kExact, "dweight");
    norm_rows_backward({dx_other.data(), true, nullptr, dweight_other.data()}, upload(dout).data(),
                       upload_bf16(x).data(), rows, width, norm, nullptr);
    expect_close(download(dx_other), dx, kExact, "dx behind a product");
    expect_close(download(dweight_other), dweight, kExact, "dweight behind a product");
  }
}

// Norms of all of a token's queries and of all of its keys.
struct WholeRows {
  static constexpr std::size_t kQueries = 264;  // wide
  static constexpr std::size_t kKeys = 72;
  static constexpr std::size_t kWidth = kQueries + 2 * kKeys;

  // Columns [first, first + cols) of rows of q, k and v.
  static std::vector<float> part(std::span<const float> rows, std::size_t first, std::size_t cols) {
    std::vector<float> out;
    for (std::size_t row = 0; row < kElementRows; ++row) {
      const auto from = rows.subspan(row * kWidth + first, cols);
      out.insert(out.end(), from.begin(), from.end());
    }
    return out;
  }
  static void put(std::span<float> rows, std::size_t first, std::span<const float> from) {
    const std::size_t cols = from.size() / kElementRows;
    for (std::size_t i = 0; i < from.size(); ++i) {
      rows[i / cols * kWidth + first + i % cols] = from[i];
    }
  }

  std::vector<float> rows = draw_bf16(kElementRows * kWidth, 1, 3.0);
  std::vector<float> bias = draw(kWidth, 2);
  std::vector<float> query_norm = draw(kQueries, 3);
  std::vector<float> key_norm = draw(kKeys, 4);
  winnow::cuda::DeviceBuffer<float> bias_there = upload(bias);
  winnow::cuda::DeviceBuffer<float> query_there = upload(query_norm);
  winnow::cuda::DeviceBuffer<float> key_there = upload(key_norm);
  WholeNorms norms{.rows = static_cast<int>(kElementRows),
                   .query_width = static_cast<int>(kQueries),
                   .key_width = static_cast<int>(kKeys),
                   .bias = bias_there.data(),
                   .query_norm = query_there.data(),
                   .key_norm = key_there.data(),
                   .eps = kEps};

  [[nodiscard]] std::vector<float> with_bias() const {
    std::vector<float> biased = rows;
    for (std::size_t i = 0; i < biased.size(); ++i) {
      biased[i] += bias[i % kWidth];
    }
    return biased;
  }
};

TEST_F(CudaElementwise, WholeNorm) {
  const WholeRows whole;
  std::vector<float> expected = whole.with_bias();
  for (const auto& [first, weight] : {std::pair{std::size_t{0}, &whole.query_norm},
                                      std::pair{WholeRows::kQueries, &whole.key_norm}}) {
    auto x = WholeRows::part(expected, first, weight->size());
    ops::rms_norm(matrix(x, weight->size()), matrix(x, weight->size()), *weight, kEps);
    WholeRows::put(expected, first, x);
  }
  const auto rounded = upload_bf16(whole.rows);
  norm_whole(whole.norms, rounded.data(), rounded.data(), nullptr);
  expect_close(download(rounded), expected, kRounded, "bf16");
  const auto exact = upload(whole.rows);
  norm_whole(whole.norms, exact.data(), exact.data(), nullptr);
  expect_close(download(exact), expected, kExact, "float");
}

TEST_F(CudaElementwise, WholeNormBackward) {
  const WholeRows whole;
  const auto biased = whole.with_bias();
  auto gradient = draw_bf16(whole.rows.size(), 5);
  const auto there = upload_bf16(gradient);
  for (const auto& [first, weight] : {std::pair{std::size_t{0}, &whole.query_norm},
                                      std::pair{WholeRows::kQueries, &whole.key_norm}}) {
    const std::size_t cols = weight->size();
    auto x = WholeRows::part(biased, first, cols);
    auto dout = WholeRows::part(gradient, first, cols);
    std::vector<float> dx(x.size(), 0.0F);
    std::vector<float> dweight(cols, 0.5F);
    ops::rms_norm_backward(workspace_, matrix(dx, cols), dweight, matrix(dout, cols),
                           matrix(x, cols), *weight, kEps);
    WholeRows::put(gradient, first, dx);
    const auto rows = upload_bf16(whole.rows);
    const auto again = upload_bf16(download(there));
    const auto sums = upload(std::vector<float>(cols, 0.5F));
    norm_whole_backward(whole.norms, again.data(), rows.data(), first == 0 ? sums.data() : nullptr,
                        first == 0 ? nullptr : sums.data(), nullptr);
    expect_close(download(sums), dweight, kExact, "dweight");
  }
  const auto rows = upload_bf16(whole.rows);
  norm_whole_backward(whole.norms, there.data(), rows.data(), nullptr, nullptr, nullptr);
  expect_close(download(there), gradient, kRounded, "the rows' gradient");
}

TEST_F(CudaElementwise, RoundsAndGrows) {
  constexpr std::size_t kCols = 40;
  auto x = draw(kElementRows * kCols, 1);
  const auto rounded = poisoned<bf16>(x.size());
  round(rounded.data(), upload(x).data(), x.size(), nullptr);
  expect_close(download(rounded), x, kRounded, "rounded");

  x = draw_bf16(kElementRows * kCols, 2);
  std::vector<std::int32_t> positions(kElementRows);
  std::vector<float> expected = x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    positions[i / kCols] = static_cast<std::int32_t>(37 * (i / kCols));
    const double periods = std::floor((37.0 * static_cast<double>(i / kCols) + 1.0) / 16.0);
    expected[i] *= static_cast<float>(1.0 + 0.3 * std::log(1.0 + periods));
  }
  const auto grown = upload_bf16(x);
  const winnow::cuda::DeviceBuffer<std::int32_t> there{std::span<const std::int32_t>(positions)};
  grow_rows(grown.data(), static_cast<int>(kElementRows), static_cast<int>(kCols), {0.3F, 16, 1},
            there.data(), nullptr);
  expect_close(download(grown), expected, kRounded, "grown");
}

TEST_F(CudaElementwise, Multipliers) {
  constexpr float kFactor = 0.22F;
  for (const std::size_t count : {std::size_t{1}, std::size_t{255}, std::size_t{4096 * 256 + 77}}) {
    const auto x = draw_bf16(count, 1);
    const auto y = draw_bf16(count, 2);
    std::vector<float> scaled = x;
    std::vector<float> sum = x;
    for (std::size_t i = 0; i < count; ++i) {
      scaled[i] *= kFactor;
      sum[i] += kFactor * y[i];
    }
    const auto a = upload(x);
    scale(a.data(), count, kFactor, nullptr);
    expect_close(download(a), scaled, 1e-7, "scaled");
    const auto b = upload_bf16(x);
    scale(b.data(), count, kFactor, nullptr);
    expect_close(download(b), scaled, kRounded, "scaled bf16");
    const auto c = upload(x);
    add_scaled(c.data(), upload(y).data(), count, kFactor, nullptr);
    expect_close(download(c), sum, 1e-6, "added");
    const auto d = upload(x);
    add_scaled(d.data(), upload_bf16(y).data(), count, kFactor, nullptr);
    expect_close(download(d), sum, 1e-6, "added bf16");
  }
}

// Rows that use 37 of 40 columns: the rest does not change.
TEST_F(CudaElementwise, SoftCap) {
  constexpr double kCap = 3.0;
  constexpr LogitRows kShape{static_cast<int>(kElementRows), 37, 40};
  const auto x = draw(kElementRows * kShape.stride, 1, 4.0);
  const auto dout = draw_bf16(x.size(), 2);
  std::vector<float> capped = x;
  std::vector<float> dx = dout;
  const auto cap = [](double at) { return kCap * std::tanh(at / kCap); };
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kShape.stride < 37) {
      constexpr double kStep = 1e-6;
      capped[i] = static_cast<float>(cap(x[i]));
      dx[i] = static_cast<float>(double{dout[i]} * (cap(x[i] + kStep) - cap(x[i] - kStep)) /
                                 (2.0 * kStep));
    }
  }
  const auto logits = upload(x);
  soft_cap(logits.data(), kShape, static_cast<float>(kCap), nullptr);
  expect_close(download(logits), capped, kExact, "capped");
  const auto gradient = upload(dout);
  soft_cap_backward(gradient.data(), logits.data(), kShape, static_cast<float>(kCap), nullptr);
  expect_close(download(gradient), dx, kExact, "gradient");
  const auto rounded = upload_bf16(dout);
  soft_cap_backward(rounded.data(), logits.data(), kShape, static_cast<float>(kCap), nullptr);
  expect_close(download(rounded), dx, kRounded, "gradient in bf16");
  const auto after = download(logits);
  for (std::size_t row = 0; row < kElementRows; ++row) {
    for (std::size_t col = 37; col < kShape.stride; ++col) {
      ASSERT_EQ(after[row * kShape.stride + col], x[row * kShape.stride + col]);
    }
  }
}

/// x rotated by definition: the first `rotary` channels of every head, times the factor.
std::vector<float> turned(std::vector<float> x, const HeadRows& shape, int rotary,
                          std::span<const float> frequencies,
                          std::span<const std::int32_t> positions, double factor, double sign) {
  const int half = rotary / 2;
  for (int row = 0; row < shape.rows; ++row) {
    for (int head = 0; head < shape.heads; ++head) {
      float* at = x.data() + static_cast<std::size_t>(row) * shape.stride +
                  static_cast<std::size_t>(head * shape.head_dim);
      for (int i = 0; i < half; ++i) {
        const auto angle = double{static_cast<float>(positions[static_cast<std::size_t>(row)]) *
                                  frequencies[static_cast<std::size_t>(i)]};
        const double cosine = factor * std::cos(angle);
        const double sine = sign * factor * std::sin(angle);
        const double a = at[i];
        const double b = at[half + i];
        at[i] = static_cast<float>(a * cosine - b * sine);
        at[half + i] = static_cast<float>(b * cosine + a * sine);
      }
    }
  }
  return x;
}

TEST_F(CudaElementwise, Rope) {
  constexpr float kFactor = 1.25F;
  for (const auto& [dim, rotary] : {std::pair(16, 16), {64, 16}, {80, 48}, {256, 64}, {96, 2}}) {
    const HeadRows shape{static_cast<int>(kElementRows), 3, dim,
                         static_cast<std::size_t>(3 * dim + 8)};
    const int half = rotary / 2;
    std::vector<float> frequencies(static_cast<std::size_t>(half));
    for (int i = 0; i < half; ++i) {
      frequencies[static_cast<std::size_t>(i)] =
          std::pow(10000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(rotary));
    }
    std::vector<std::int32_t> positions(kElementRows);
    for (std::size_t i = 0; i < kElementRows; ++i) {
      positions[i] = static_cast<std::int32_t>(i * i * 7);
    }
    const DeviceBuffer<std::int32_t> places{std::span<const std::int32_t>(positions)};
    DeviceBuffer<float2> angles(kElementRows * static_cast<std::size_t>(half));
    rope_angles(angles.data(), upload(frequencies).data(), half, places.data(),
                static_cast<int>(kElementRows), nullptr, kFactor);
    const auto x = draw_bf16(kElementRows * shape.stride, 1);
    const auto forward = turned(x, shape, rotary, frequencies, positions, kFactor, 1.0);
    const auto backward = turned(x, shape, rotary, frequencies, positions, kFactor, -1.0);
    const auto a = upload(x);
    rope(a.data(), shape, angles.data(), rotary, nullptr);
    expect_close(download(a), forward, kExact, "turned");
    const auto b = upload_bf16(x);
    rope(b.data(), shape, angles.data(), rotary, nullptr);
    expect_close(download(b), forward, kRounded, "turned, bf16");
    const auto c = upload(x);
    rope_backward(c.data(), shape, angles.data(), rotary, nullptr);
    expect_close(download(c), backward, kExact, "turned back");
    const auto d = upload_bf16(x);
    rope_backward(d.data(), shape, angles.data(), rotary, nullptr);
    expect_close(download(d), backward, kRounded, "turned back, bf16");
    const auto result = download(a);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t within = i % shape.stride;
      if (within >= static_cast<std::size_t>(3 * dim) ||
          within % static_cast<std::size_t>(dim) >= static_cast<std::size_t>(rotary)) {
        ASSERT_EQ(result[i], x[i]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
