// Heads that are not projected side by side, and those whose values are normed.
#include "ops/cuda/training/training_heads.h"
#include "ops/cuda/training/training_ops_testing.h"
#include "ops/norm.h"

namespace winnow::ops::cuda::testing {
namespace {

constexpr std::size_t kRows = 21;
constexpr std::size_t kHeads = 4;
constexpr std::size_t kKvHeads = 2;
constexpr std::size_t kAll = kHeads + 2 * kKvHeads;
constexpr std::size_t kDim = 272;  // more than a warp has in one go
constexpr std::size_t kWide = 2 * kHeads + kKvHeads;
constexpr int kAngles = 200;
constexpr float kEps = 1e-5F;

using Floats = std::vector<float>;
using CudaJoinedHeads = CudaTrainingOps;

/// `count` heads from `begin` on, of rows of kAll heads.
Floats heads_of(const Floats& from, std::size_t begin, std::size_t count) {
  Floats result;
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>((row * kAll + begin) * kDim);
    result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(count * kDim));
  }
  return result;
}

// Gates of outputs between queries, keys that are values too, RMSNorm of values without weights,
// rows of angles wider than what turns: against the same heads side by side.
TEST_F(CudaJoinedHeads, TakeValuesFromKeysBesideGates) {
  const Floats joined = draw_bf16(kRows * kWide * kDim, 1);
  const Floats bias = draw(kWide * kDim, 2);
  Floats apart;
  Floats apart_bias;
  const auto add_heads = [&](Floats& to, const Floats& from, std::size_t row) {
    for (const std::size_t head : {0U, 2U, 4U, 6U, 8U, 9U, 8U, 9U}) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>((row * kWide + head) * kDim);
      to.insert(to.end(), first, first + kDim);
    }
  };
  for (std::size_t row = 0; row < kRows; ++row) {
    add_heads(apart, joined, row);
  }
  add_heads(apart_bias, bias, 0);
  const Floats dqueries = draw_bf16(kRows * kHeads * kDim, 3);
  const Floats dkeys = draw_bf16(kRows * kKvHeads * kDim, 4);
  const Floats dvalues = draw_bf16(kRows * kKvHeads * kDim, 5);
  const Floats drawn = draw(kRows * kAngles * 2, 6);
  std::vector<float2> angles;
  for (std::size_t i = 0; i < kRows * kAngles; ++i) {
    angles.push_back({drawn[2 * i], drawn[2 * i + 1]});
  }
  const DeviceBuffer<float2> angles_device{std::span<const float2>(angles)};
  const auto query_norm = upload(draw(kDim, 7));
  const auto key_norm = upload(draw(kDim, 8));
  const auto dq = upload_bf16(dqueries);
  const auto dk = upload_bf16(dkeys);
  const auto dv = upload_bf16(dvalues);
  struct Result {
    Floats queries, keys, values, gradient;
  };
  const auto through = [&](const Floats& projected, const Floats& biases, bool together) {
    const auto rows = upload_bf16(projected);
    const auto bias_device = upload(biases);
    const TrainingHeads heads{.rows = kRows,
                              .heads = kHeads,
                              .kv_heads = kKvHeads,
                              .head_dim = kDim,
                              .output_gates = together,
                              .values_are_keys = together,
                              .projected = rows.data(),
                              .bias = bias_device.data(),
                              .norms = true,
                              .query_norm = query_norm.data(),
                              .key_norm = key_norm.data(),
                              .value_norm = together,
                              .eps = kEps,
                              .angles = angles_device.data(),
                              .angle_stride = kAngles,
                              .query = {},
                              .key = {}};
    const auto q = poisoned<bf16>(dqueries.size());
    const auto k = poisoned<bf16>(dkeys.size());
    const auto v = poisoned<bf16>(dvalues.size());
    const auto dprojected = upload_bf16(Floats(projected.size(), 0.0F));
    split_heads(heads, q.data(), k.data(), v.data(), nullptr, nullptr, nullptr);
    split_heads_backward(heads,
                         {.queries = dq.data(),
                          .keys = dk.data(),
                          .values = dv.data(),
                          .projected = dprojected.data()},
                         nullptr);
    return Result{download(q), download(k), download(v), download(dprojected)};
  };
  const Result found = through(joined, bias, true);
  const Result expected = through(apart, apart_bias, false);
  EXPECT_EQ(found.queries, expected.queries);
  EXPECT_EQ(found.keys, expected.keys);
  Floats raw = heads_of(apart, kHeads + kKvHeads, kKvHeads);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    raw[i] += apart_bias[(kHeads + kKvHeads) * kDim + i % (kKvHeads * kDim)];
  }
  const Floats ones(kDim, 1.0F);
  Floats values(raw.size());
  rms_norm(matrix(values, kDim), matrix(raw, kDim), ones, kEps);
  expect_close(found.values, values, kRounded, "values");
  Floats draw_values(raw.size());
  Floats dout = dvalues;
  rms_norm_backward(workspace_, matrix(draw_values, kDim), {}, matrix(dout, kDim),
                    matrix(raw, kDim), ones, kEps);
  Floats keys = heads_of(expected.gradient, kHeads, kKvHeads);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] += draw_values[i];
  }
  Floats found_keys;
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto first =
        found.gradient.begin() + static_cast<std::ptrdiff_t>((row * kWide + 2 * kHeads) * kDim);
    found_keys.insert(found_keys.end(), first, first + kKvHeads * kDim);
    for (std::size_t c = 0; c < kHeads * kDim; ++c) {
      const std::size_t at = (row * kWide + c / kDim * 2) * kDim + c % kDim;
      EXPECT_EQ(found.gradient[at], expected.gradient[row * kAll * kDim + c]);
      EXPECT_EQ(found.gradient[at + kDim], 0.0F);  // of gates
    }
  }
  expect_close(found_keys, keys, kRounded, "keys that are values");
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
