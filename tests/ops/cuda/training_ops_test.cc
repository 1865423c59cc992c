// Ops of training on the device against those of the CPU, which are checked by finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/cuda/device.h"
#include "ops/activation.h"
#include "ops/cuda/activation.h"
#include "ops/cuda/bias.h"
#include "ops/cuda/embedding.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/loss.h"
#include "ops/cuda/rope.h"
#include "ops/cuda/segment_average.h"
#include "ops/cuda/training_decisions.h"
#include "ops/cuda/training_heads.h"
#include "ops/cuda/training_norm.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sampled_decisions.h"
#include "ops/segment_average.h"

namespace winnow::ops::cuda {
namespace {

using winnow::cuda::DeviceBuffer;

// Results in bf16 of operands that are exact; and sums in float.
constexpr double kRounded = 4e-3;
constexpr double kExact = 2e-5;

std::vector<float> draw(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(spread * random.normal()); });
  return values;
}

std::vector<bf16> rounded(std::span<const float> values) {
  std::vector<bf16> result(values.size());
  std::ranges::transform(values, result.begin(), [](float x) { return to_bf16(x); });
  return result;
}

std::vector<float> widened(std::span<const bf16> values) {
  std::vector<float> result(values.size());
  std::ranges::transform(values, result.begin(), [](bf16 x) { return to_float(x); });
  return result;
}

/// Numbers that bf16 holds exactly.
std::vector<float> draw_bf16(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  return widened(rounded(draw(count, seed, spread)));
}

/// Floats in device memory, or the same rounded to bf16.
DeviceBuffer<float> upload(std::span<const float> values) {
  return DeviceBuffer<float>(values);
}
DeviceBuffer<bf16> upload_bf16(std::span<const float> values) {
  return DeviceBuffer<bf16>(std::span<const bf16>(rounded(values)));
}
/// Memory that nothing has been written to looks like NaN.
template <class T>
DeviceBuffer<T> poisoned(std::size_t count) {
  DeviceBuffer<T> buffer(count);
  buffer.fill(0xFF);
  return buffer;
}
std::vector<float> download(const DeviceBuffer<float>& buffer) {
  winnow::cuda::check(cudaDeviceSynchronize(), "wait");
  std::vector<float> values(buffer.size());
  buffer.read(values);
  return values;
}
std::vector<float> download(const DeviceBuffer<bf16>& buffer) {
  winnow::cuda::check(cudaDeviceSynchronize(), "wait");
  std::vector<bf16> values(buffer.size());
  buffer.read(values);
  return widened(values);
}

void expect_close(std::span<const float> a, std::span<const float> b, double tolerance,
                  const char* what) {
  ASSERT_EQ(a.size(), b.size());
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2.0);
    norm += std::pow(double{b[i]}, 2.0);
  }
  EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << what;
}

Matrix<float> matrix(std::vector<float>& values, std::size_t cols) {
  return {values.data(), values.size() / cols, cols};
}

class CudaTrainingOps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    context_.compute = DType::f32;
    context_.workspace = &workspace_;
  }

  Workspace workspace_;
  Context context_;
};

TEST_F(CudaTrainingOps, Norm) {
  for (const std::size_t cols : {24U, 2048U, 4104U}) {
    constexpr std::size_t kRows = 37;
    auto x = draw(kRows * cols, 1);
    auto dout = draw_bf16(kRows * cols, 2);
    const auto weight = draw(cols, 3);
    std::vector<float> expected(x.size());
    rms_norm(matrix(expected, cols), matrix(x, cols), weight, 1e-5F);
    auto dx = draw(x.size(), 4);
    std::vector<float> dweight(cols, 0.5F);
    const auto dx_device = upload(dx);
    const auto dweight_device = upload(dweight);
    rms_norm_backward(workspace_, matrix(dx, cols), dweight, matrix(dout, cols), matrix(x, cols),
                      weight, 1e-5F);

    const auto x_device = upload(x);
    const auto weight_device = upload(weight);
    const auto out = poisoned<bf16>(x.size());
    const auto bad = DeviceBuffer<int>(std::span<const int>(std::vector{9}));
    const int rows = static_cast<int>(kRows);
    const int width = static_cast<int>(cols);
    rms_norm(out.data(), x_device.data(), rows, width, weight_device.data(), 1e-5F, 4, bad.data(),
             nullptr);
    expect_close(download(out), expected, kRounded, "norm");
    std::vector<int> place(1);
    bad.read(place);
    EXPECT_EQ(place[0], 9);
    x[cols] = std::numeric_limits<float>::quiet_NaN();
    rms_norm(out.data(), upload(x).data(), rows, width, weight_device.data(), 1e-5F, 4, bad.data(),
             nullptr);
    bad.read(place);
    EXPECT_EQ(place[0], 4);

    const auto rounded_dx = poisoned<bf16>(x.size());
    rms_norm_backward({dx_device.data(), true, rounded_dx.data(), dweight_device.data()},
                      upload_bf16(dout).data(), x_device.data(), rows, width, weight_device.data(),
                      1e-5F, nullptr);
    expect_close(download(dx_device), dx, kExact, "dx");
    expect_close(download(rounded_dx), dx, kRounded, "rounded dx");
    expect_close(download(dweight_device), dweight, kExact, "dweight");
    const auto fresh = poisoned<float>(x.size());
    rms_norm_backward({fresh.data(), false, nullptr, nullptr}, upload_bf16(dout).data(),
                      x_device.data(), rows, width, weight_device.data(), 1e-5F, nullptr);
    const auto before = draw(dx.size(), 4);
    std::ranges::transform(dx, before, dx.begin(), std::minus<>());
    expect_close(download(fresh), dx, 5 * kExact, "replaced dx");
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

TEST_F(CudaTrainingOps, SampledDecisions) {
  constexpr std::size_t kRows = 301;
  constexpr std::size_t kHeads = 3;
  constexpr int kShift = 2;
  std::vector<std::int32_t> first_key(kRows, 0);
  std::fill(first_key.begin() + 100, first_key.end(), 100);
  auto read = draw(kRows * kHeads, 1);
  std::vector<float> logits(read.size());
  std::ranges::transform(read, logits.begin(), [](float x) { return 2.0F * x - 0.5F; });
  std::vector<float> noisy(read.size());
  std::vector<float> bias(read.size());
  Random random(77, 5);
  const std::int64_t marked = sample_decisions(random, 0.3F, matrix(noisy, kHeads),
                                               matrix(bias, kHeads), matrix(logits, kHeads));
  // A decision concerns the key `shift` before, if that is of the same document.
  const auto concerned = [&](std::size_t t) {
    return first_key[t] + kShift <= static_cast<std::int32_t>(t);
  };
  std::vector<float> key_bias(read.size(), 0.0F);
  const auto dkey_bias = draw(read.size(), 2);
  std::vector<float> dbias(read.size(), 0.0F);
  for (std::size_t t = 0; t < kRows; ++t) {
    for (std::size_t h = 0; h < kHeads && concerned(t); ++h) {
      key_bias[(t - kShift) * kHeads + h] = bias[t * kHeads + h];
      dbias[t * kHeads + h] = dkey_bias[(t - kShift) * kHeads + h];
    }
  }
  std::vector<float> dread(read.size(), 0.0F);
  sample_decisions_backward(0.3F, matrix(dread, kHeads), matrix(noisy, kHeads),
                            matrix(dbias, kHeads), -0.1F);
  for (std::size_t i = 0; i < dread.size(); ++i) {
    const float beyond = std::max(std::abs(logits[i]) - 1.0F, 0.0F);
    dread[i] = 2.0F * (dread[i] + 2.0F * 0.25F * std::copysign(beyond, logits[i]));
  }

  const DeviceBuffer<std::int32_t> first_device{std::span<const std::int32_t>(first_key)};
  const DeviceBuffer<std::uint64_t> seed{
      std::span<const std::uint64_t>(std::vector<std::uint64_t>{77})};
  const auto read_device = upload(read);
  const TrainingDecisions decisions{.rows = kRows,
                                    .kv_heads = kHeads,
                                    .decisions = kHeads,
                                    .shift = kShift,
                                    .first_key = first_device.data(),
                                    .scale = 2.0F,
                                    .offset = 0.5F,
                                    .read = read_device.data(),
                                    .stride = kHeads,
                                    .sampled = true,
                                    .tau = 0.3F,
                                    .noise = seed.data(),
                                    .layer = 5};
  const auto logits_device = poisoned<float>(read.size());
  const auto noisy_device = poisoned<float>(read.size());
  const auto bias_device = poisoned<float>(read.size());
  const auto alphas = poisoned<float>(read.size());
  const DeviceBuffer<unsigned long long> counts{
      std::span<const unsigned long long>(std::vector<unsigned long long>(kHeads))};
  const DecisionResults results{.logits = logits_device.data(),
                                .noisy = noisy_device.data(),
                                .key_bias = bias_device.data(),
                                .alphas = alphas.data(),
                                .marked = counts.data()};
  take_decisions(decisions, results, nullptr);
  expect_close(download(noisy_device), noisy, kExact, "noisy");
  expect_close(download(bias_device), key_bias, kExact, "bias of keys");
  std::vector<float> soft(noisy.size());
  std::ranges::transform(noisy, soft.begin(), [](float z) { return 1.0F / (1.0F + std::exp(-z)); });
  expect_close(download(alphas), soft, kExact, "alphas");
  std::vector<unsigned long long> count(kHeads);
  counts.read(count);
  EXPECT_EQ(std::accumulate(count.begin(), count.end(), 0ULL), static_cast<unsigned>(marked));

  const DeviceBuffer<DecisionFactors> loss{
      std::span<const DecisionFactors>(std::vector<DecisionFactors>{{-0.1F, 0.25F, 1.0F}})};
  const auto dread_device = poisoned<float>(read.size());
  const auto dread_rounded = poisoned<bf16>(kRows * 8);
  const auto dkey_device = upload(dkey_bias);
  take_decisions_backward(decisions, results,
                          {.key_bias = dkey_device.data(),
                           .alphas = nullptr,
                           .loss = loss.data(),
                           .read = dread_device.data(),
                           .rounded = dread_rounded.data(),
                           .rounded_stride = 8},
                          nullptr);
  expect_close(download(dread_device), dread, kExact, "gradient of what is read");
  const auto padded = download(dread_rounded);
  for (std::size_t t = 0; t < kRows; ++t) {
    for (std::size_t h = 0; h < 8; ++h) {
      const float expected = h < kHeads ? dread[t * kHeads + h] : 0.0F;
      EXPECT_NEAR(padded[t * 8 + h], expected, kRounded * std::abs(expected) + 1e-6);
    }
  }
}

TEST_F(CudaTrainingOps, SegmentAverages) {
  constexpr std::size_t kRows = 75;
  constexpr std::size_t kHeads = 2;
  for (const std::size_t dim : {8U, 64U, 128U}) {
    std::vector<std::int32_t> first_key(kRows, 0);
    std::fill(first_key.begin() + 40, first_key.end(), 40);
    auto alphas = draw(kRows * kHeads, 1);
    std::ranges::for_each(alphas, [](float& x) { x = 1.0F / (1.0F + std::exp(-2.0F * x)); });
    const auto logits = draw(kRows * kHeads, 2);
    auto omegas = logits;
    std::ranges::for_each(omegas, [](float& x) { x = 1.0F / (1.0F + std::exp(-x)); });
    const std::size_t width = kHeads * dim;
    auto keys = draw_bf16(kRows * width, 3);
    auto values = draw_bf16(kRows * width, 4);
    auto dkeys = draw_bf16(kRows * width, 5);
    auto dvalues = draw_bf16(kRows * width, 6);
    const ops::SegmentAverage host{.head_dim = static_cast<int>(dim),
                                   .span = 12,
                                   .first_key = first_key,
                                   .alphas = matrix(alphas, kHeads),
                                   .omegas = matrix(omegas, kHeads),
                                   .keys = matrix(keys, width),
                                   .values = matrix(values, width)};
    std::vector<float> merged_keys(keys.size());
    std::vector<float> merged_values(keys.size());
    ops::segment_average(host, matrix(merged_keys, width), matrix(merged_values, width));
    std::vector<float> dalphas(alphas.size());
    std::vector<float> domegas(alphas.size());
    std::vector<float> dsingle_keys(keys.size());
    std::vector<float> dsingle_values(keys.size());
    ops::segment_average_backward(workspace_, host, matrix(merged_keys, width),
                                  matrix(merged_values, width), matrix(dkeys, width),
                                  matrix(dvalues, width),
                                  {matrix(dalphas, kHeads), matrix(domegas, kHeads),
                                   matrix(dsingle_keys, width), matrix(dsingle_values, width)});
    for (std::size_t i = 0; i < domegas.size(); ++i) {
      domegas[i] *= omegas[i] * (1.0F - omegas[i]);
    }

    const DeviceBuffer<std::int32_t> first_device{std::span<const std::int32_t>(first_key)};
    const auto alphas_device = upload(alphas);
    const auto logits_device = upload(logits);
    const auto keys_device = upload_bf16(keys);
    const auto values_device = upload_bf16(values);
    const SegmentAverage average{.rows = kRows,
                                 .kv_heads = kHeads,
                                 .head_dim = static_cast<int>(dim),
                                 .span = 12,
                                 .first_key = first_device.data(),
                                 .alphas = alphas_device.data(),
                                 .omega_logits = logits_device.data(),
                                 .keys = keys_device.data(),
                                 .values = values_device.data()};
    const auto out_keys = poisoned<bf16>(keys.size());
    const auto out_values = poisoned<bf16>(keys.size());
    segment_average(average, out_keys.data(), out_values.data(), nullptr);
    expect_close(download(out_keys), merged_keys, kRounded, "keys");
    expect_close(download(out_values), merged_values, kRounded, "values");
    const auto dalphas_device = poisoned<float>(alphas.size());
    const auto dlogits_device = poisoned<float>(alphas.size());
    const auto dkeys_device = poisoned<bf16>(keys.size());
    const auto dvalues_device = poisoned<bf16>(keys.size());
    const auto scratch = poisoned<float>(segment_average_scratch(kRows, kHeads));
    segment_average_backward(
        average, upload_bf16(dkeys).data(), upload_bf16(dvalues).data(),
        {dalphas_device.data(), dlogits_device.data(), dkeys_device.data(), dvalues_device.data()},
        scratch.data(), nullptr);
    expect_close(download(dalphas_device), dalphas, 1e-4, "dalphas");
    expect_close(download(dlogits_device), domegas, 1e-4, "domegas");
    expect_close(download(dkeys_device), dsingle_keys, kRounded, "dkeys");
    expect_close(download(dvalues_device), dsingle_values, kRounded, "dvalues");
  }
}

}  // namespace
}  // namespace winnow::ops::cuda
