// Decisions and merging in training, on the device against the CPU's.
#include "ops/cuda/training/training_decisions.h"

#include <numeric>

#include "base/error.h"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/segment_average.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/sampled_decisions.h"
#include "ops/segment_average.h"

namespace winnow::ops::cuda::testing {
namespace {

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
  // A decision is about the key `shift` before, if that is in the same document.
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
    const float excess = 0.25F * static_cast<float>(1 + i % kHeads);
    dread[i] = 2.0F * (dread[i] + 2.0F * excess * std::copysign(beyond, logits[i]));
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

  std::vector<DecisionFactors> factors;
  for (std::size_t head = 0; head < kHeads; ++head) {
    factors.push_back({-0.1F, 0.25F * static_cast<float>(1 + head), 1.0F});
  }
  const DeviceBuffer<DecisionFactors> loss{std::span<const DecisionFactors>(factors)};
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
  for (const std::size_t dim : {8U, 64U, 128U, 264U, 512U}) {
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
}  // namespace winnow::ops::cuda::testing
