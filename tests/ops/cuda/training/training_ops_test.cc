// Ops of training on the device against those of the CPU, which are checked by finite differences.
#include <numeric>

#include "ops/activation.h"
#include "ops/cuda/activation.h"
#include "ops/cuda/bias.h"
#include "ops/cuda/embedding.h"
#include "ops/cuda/linear/linear.h"
#include "ops/cuda/loss.h"
#include "ops/cuda/training/training_norm.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/norm.h"

namespace winnow::ops::cuda::testing {
namespace {

/// A norm and its backward, as the CPU computes them.
struct HostNorm {
  const std::vector<float>& weight;
  const std::vector<float>& bias;  // of LayerNorm
  bool centers;
  float offset;

  void forward(std::vector<float>& out, std::vector<float>& x) const {
    const std::size_t cols = weight.size();
    if (centers) {
      layer_norm(matrix(out, cols), matrix(x, cols), weight, bias, 1e-5F, offset);
    } else {
      rms_norm(matrix(out, cols), matrix(x, cols), weight, 1e-5F, offset);
    }
  }
  void backward(Workspace& workspace, std::vector<float>& dx, std::vector<float>& dweight,
                std::vector<float>& dout, std::vector<float>& x) const {
    const std::size_t cols = weight.size();
    if (centers) {
      layer_norm_backward(workspace, {matrix(dx, cols), dweight, {}}, matrix(dout, cols),
                          matrix(x, cols), weight, 1e-5F, offset);
    } else {
      rms_norm_backward(workspace, matrix(dx, cols), dweight, matrix(dout, cols), matrix(x, cols),
                        weight, 1e-5F, offset);
    }
  }
};

class CudaNorms : public CudaTrainingOps {
 protected:
  void expect_like_the_cpu(std::size_t cols, bool centers, float offset) {
    constexpr std::size_t kRows = 37;
    auto x = draw(kRows * cols, 1);
    auto dout = draw_bf16(kRows * cols, 2);
    const auto weight = draw(cols, 3);
    const auto bias = draw(cols, 5);
    const HostNorm host{weight, bias, centers, offset};
    std::vector<float> expected(x.size());
    host.forward(expected, x);
    auto dx = draw(x.size(), 4);
    std::vector<float> dweight(cols, 0.5F);
    const auto dx_device = upload(dx);
    const auto dweight_device = upload(dweight);
    host.backward(workspace_, dx, dweight, dout, x);

    const auto x_device = upload(x);
    const auto weight_device = upload(weight);
    const auto bias_device = upload(bias);
    const TrainingNorm norm{.weight = weight_device.data(),
                            .eps = 1e-5F,
                            .offset = offset,
                            .centers = centers,
                            .bias = centers ? bias_device.data() : nullptr};
    const auto out = poisoned<bf16>(x.size());
    const auto bad = DeviceBuffer<int>(std::span<const int>(std::vector{9}));
    const int rows = static_cast<int>(kRows);
    const int width = static_cast<int>(cols);
    norm_rows(out.data(), x_device.data(), rows, width, norm, 4, bad.data(), nullptr);
    expect_close(download(out), expected, kRounded, "norm");
    std::vector<int> place(1);
    bad.read(place);
    EXPECT_EQ(place[0], 9);
    x[cols] = std::numeric_limits<float>::quiet_NaN();
    norm_rows(out.data(), upload(x).data(), rows, width, norm, 4, bad.data(), nullptr);
    bad.read(place);
    EXPECT_EQ(place[0], 4);

    const auto rounded_dx = poisoned<bf16>(x.size());
    norm_rows_backward({dx_device.data(), true, rounded_dx.data(), dweight_device.data()},
                       upload_bf16(dout).data(), x_device.data(), rows, width, norm, nullptr);
    expect_close(download(dx_device), dx, kExact, "dx");
    expect_close(download(rounded_dx), dx, kRounded, "rounded dx");
    expect_close(download(dweight_device), dweight, kExact, "dweight");
    const auto fresh = poisoned<float>(x.size());
    norm_rows_backward({fresh.data(), false, nullptr, nullptr}, upload_bf16(dout).data(),
                       x_device.data(), rows, width, norm, nullptr);
    const auto before = draw(dx.size(), 4);
    std::ranges::transform(dx, before, dx.begin(), std::minus<>());
    expect_close(download(fresh), dx, 5 * kExact, "replaced dx");

    const auto rounded_alone = poisoned<bf16>(x.size());
    norm_rows_backward({.rounded = rounded_alone.data()}, upload_bf16(dout).data(), x_device.data(),
                       rows, width, norm, nullptr);
    expect_close(download(rounded_alone), dx, kRounded, "rounded dx alone");

    std::vector<float> half_dweight(cols);
    const auto half_device = upload(half_dweight);
    norm_rows_backward({fresh.data(), false, nullptr, half_device.data(), 0.5F},
                       upload_bf16(dout).data(), x_device.data(), rows, width, norm, nullptr);
    std::ranges::transform(dx, dx.begin(), [](float value) { return 0.5F * value; });
    std::ranges::transform(dweight, half_dweight.begin(),
                           [](float sum) { return 0.5F * (sum - 0.5F); });  // 0.5: what it began as
    expect_close(download(fresh), dx, 5 * kExact, "half of dx");
    expect_close(download(half_device), half_dweight, kExact, "half of dweight");
  }
};

TEST_F(CudaNorms, GiveWhatTheCpuGives) {
  for (const std::size_t cols : {24U, 2048U, 4104U}) {
    for (const bool centers : {false, true}) {
      for (const float offset : {0.0F, 1.0F}) {
        SCOPED_TRACE(::testing::Message() << cols << " columns, " << centers << ", " << offset);
        expect_like_the_cpu(cols, centers, offset);
      }
    }
  }
}

TEST_F(CudaTrainingOps, SwiGlu) {
  constexpr std::size_t kRows = 19;
  for (const std::size_t cols : {40U, 2056U}) {
    auto gate = draw_bf16(kRows * cols, 1, 2.0);
    auto up = draw_bf16(kRows * cols, 2);
    const auto dout = draw_bf16(kRows * cols, 3);
    std::vector<float> both;
    for (std::size_t row = 0; row < kRows; ++row) {
      both.insert(both.end(), gate.begin() + static_cast<std::ptrdiff_t>(row * cols),
                  gate.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols));
      both.insert(both.end(), up.begin() + static_cast<std::ptrdiff_t>(row * cols),
                  up.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols));
    }
    auto dgate = dout;
    std::vector<float> dup(dout.size());
    silu_multiply_backward(matrix(dgate, cols), matrix(dup, cols), matrix(dgate, cols),
                           matrix(gate, cols), matrix(up, cols));
    std::vector<float> product = gate;
    silu_multiply(matrix(product, cols), matrix(up, cols));
    const auto gate_up = upload_bf16(both);
    const auto result = upload_bf16(dout);
    silu_multiply_backward(gate_up.data(), result.data(), static_cast<int>(kRows),
                           static_cast<int>(cols), nullptr, nullptr);
    expect_close(download(result), product, kRounded, "product");
    const auto gradients = download(gate_up);
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto of = [&](std::size_t which) {
        return std::span(gradients).subspan((2 * row + which) * cols, cols);
      };
      expect_close(of(0), std::span(dgate).subspan(row * cols, cols), kRounded, "dgate");
      expect_close(of(1), std::span(dup).subspan(row * cols, cols), kRounded, "dup");
    }
  }
}

TEST_F(CudaTrainingOps, LinearLayersBackward) {
  Linear linear;
  constexpr std::size_t kRows = 67;
  for (const auto& [outputs, inputs, stride] :
       std::vector<std::array<std::size_t, 3>>{{96, 64, 96}, {33, 24, 40}, {2, 128, 8}}) {
    auto x = draw_bf16(kRows * inputs, 1);
    auto weight = draw_bf16(outputs * inputs, 2);
    auto dout = draw_bf16(kRows * outputs, 3);
    std::vector<float> dx(x.size());
    std::vector<float> dweight = draw(weight.size(), 4);
    std::vector<float> dbias(outputs);
    const auto dweight_device = upload(dweight);
    const auto dbias_device = upload(dbias);
    const Weight view{WeightFormat::f32, static_cast<std::int64_t>(outputs),
                      static_cast<std::int64_t>(inputs), weight.data()};
    linear_backward(context_, {matrix(dx, inputs), matrix(dweight, inputs), dbias},
                    matrix(dout, outputs), matrix(x, inputs), view);

    std::vector<float> strided(kRows * stride, 0.0F);
    for (std::size_t i = 0; i < dout.size(); ++i) {
      strided[i / outputs * stride + i % outputs] = dout[i];
    }
    const auto dout_device = upload_bf16(strided);
    const auto dx_device = poisoned<bf16>(x.size());
    const auto x_device = upload_bf16(x);
    const auto weight_device = upload_bf16(weight);
    const int m = static_cast<int>(kRows);
    const int n = static_cast<int>(outputs);
    const int k = static_cast<int>(inputs);
    const int s = static_cast<int>(stride);
    linear.input_gradient(dx_device.data(), dout_device.data(), weight_device.data(), m, n, k,
                          false, nullptr, s);
    expect_close(download(dx_device), dx, kRounded, "dx");
    linear.input_gradient(dx_device.data(), dout_device.data(), weight_device.data(), m, n, k, true,
                          nullptr, s);
    std::ranges::transform(dx, dx.begin(), [](float g) { return 2.0F * g; });
    expect_close(download(dx_device), dx, 2 * kRounded, "dx twice");
    linear.weight_gradient(dweight_device.data(), dout_device.data(), x_device.data(), m, n, k,
                           nullptr, s);
    expect_close(download(dweight_device), dweight, kExact, "dweight");
    add_column_sums(dbias_device.data(), dout_device.data(), m, n, s, nullptr);
    expect_close(download(dbias_device), dbias, kExact, "dbias");
  }
}

TEST_F(CudaTrainingOps, Embedding) {
  constexpr std::size_t kCols = 136;
  auto table = draw_bf16(7 * kCols, 1);
  const std::vector<std::int32_t> tokens{3, 0, 3, 6, 3};
  const DeviceBuffer<std::int32_t> tokens_device{std::span<const std::int32_t>(tokens)};
  const auto dout = draw(tokens.size() * kCols, 2);
  auto dtable = draw(table.size(), 3);
  const auto dtable_device = upload(dtable);
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < kCols; ++i) {
      const std::size_t at = static_cast<std::size_t>(tokens[t]) * kCols + i;
      expected.push_back(table[at]);
      dtable[at] += dout[t * kCols + i];
    }
  }
  const auto out = poisoned<float>(expected.size());
  const int rows = static_cast<int>(tokens.size());
  embed(out.data(), upload_bf16(table).data(), tokens_device.data(), rows, kCols, nullptr);
  EXPECT_EQ(download(out), expected);
  embed_backward(dtable_device.data(), upload(dout).data(), tokens_device.data(), rows, kCols,
                 nullptr);
  expect_close(download(dtable_device), dtable, kExact, "embedding");
}

TEST_F(CudaTrainingOps, Losses) {
  constexpr std::size_t kRows = 6;
  const std::vector<float> weights{1.0F, 0.25F, 0.0F, 8.0F, 1.0F, 2.0F};
  const auto weights_device = upload(weights);
  for (const std::size_t vocab : {2U, 33U, 1000U, 9001U}) {
    const std::size_t stride = (vocab + 7) / 8 * 8;
    const auto logits = draw(kRows * vocab, vocab, 3.0);
    auto teacher = draw(kRows * vocab, vocab + 1, 3.0);
    const auto padded = [&](std::span<const float> rows) {
      std::vector<float> result(kRows * stride, std::numeric_limits<float>::quiet_NaN());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        result[i / vocab * stride + i % vocab] = rows[i];
      }
      return result;
    };
    std::vector<std::int32_t> targets(kRows);
    std::iota(targets.begin(), targets.end(), 0);
    for (auto& target : targets) {
      target = static_cast<std::int32_t>(static_cast<std::size_t>(target) * 7 % vocab);
    }
    const DeviceBuffer<std::int32_t> targets_device{std::span<const std::int32_t>(targets)};
    const auto logits_device = upload(padded(logits));
    const auto teacher_device = upload(padded(teacher));
    for (int which = 0; which < 3; ++which) {
      std::vector<float> gradient = logits;
      const auto divergence = which == 1 ? Divergence::forward : Divergence::reverse;
      const double expected = which == 0
                                  ? ops::cross_entropy(matrix(gradient, vocab), targets, weights)
                                  : ops::distillation(divergence, matrix(gradient, vocab),
                                                      matrix(teacher, vocab), weights);
      const auto gradient_device = poisoned<bf16>(kRows * stride);
      const DeviceBuffer<double> loss{std::span<const double>(std::vector{1.0})};
      const LossRows rows{.rows = kRows,
                          .vocab = static_cast<int>(vocab),
                          .stride = static_cast<int>(stride),
                          .logits = logits_device.data(),
                          .weights = weights_device.data(),
                          .gradient = gradient_device.data(),
                          .loss = loss.data()};
      if (which == 0) {
        cross_entropy(rows, targets_device.data(), nullptr);
      } else {
        distillation(divergence, rows, teacher_device.data(), nullptr);
      }
      const auto all = download(gradient_device);
      std::vector<float> result(gradient.size());
      for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = all[i / vocab * stride + i % vocab];
      }
      expect_close(result, gradient, kRounded, "gradient of logits");
      std::vector<double> sum(1);
      loss.read(sum);
      EXPECT_NEAR(sum[0] - 1.0, expected, 1e-5 * std::abs(expected) + 1e-6);
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
