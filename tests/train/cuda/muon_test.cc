#include "train/cuda/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cuda/device.h"
#include "train/tiny_model.h"

namespace winnow::train {
namespace {

using winnow::cuda::DeviceBuffer;

std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(random.normal()); });
  return values;
}

DeviceBuffer<float> on_device(const std::vector<float>& values) {
  return DeviceBuffer<float>(std::span<const float>(values));
}

model::ModelSpec config() {
  return testing::tiny_config("llama", {.hidden = 136,
                                        .layers = 3,
                                        .heads = 8,
                                        .kv_heads = 2,
                                        .head_dim = 24,
                                        .intermediate = 200,
                                        .vocab = 33,
                                        .max_positions = 128});
}

// Compares updates by each tensor's norm: the device orthogonalises in bf16.
TEST(CudaMuon, UpdatesLikeTheCpu) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const ParameterList list(config(), Trained::everything);
  const auto start = draw(list.size(), 1);
  auto values = start;
  std::vector<float> momentum(list.size());
  const auto device_values = on_device(values);
  const auto device_momentum = on_device(momentum);
  const DeviceBuffer<bf16> rounded(list.size());
  const winnow::cuda::Stream stream;
  ops::cuda::Linear linear;
  cuda::Muon muon({}, list, Partition(list, 0, 1, true));
  linear.search(true);
  muon.warm_up(linear, stream.get());
  linear.search(false);
  ops::Workspace workspace;
  ops::Context context{.compute = DType::f32, .workspace = &workspace};
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto gradients = draw(list.size(), 5 + step);
    const MuonUpdate update{.rate = 0.02, .decay = 0.5, .gradient_factor = 0.3};
    apply_muon(context, {}, update, list, values, gradients, momentum);
    const auto device_gradients = on_device(gradients);
    muon.apply(
        update,
        {device_values.data(), rounded.data(), device_gradients.data(), device_momentum.data()},
        linear, stream.get());
    stream.synchronize();
  }
  std::vector<float> result(list.size());
  device_values.read(result);
  std::vector<float> moved(list.size());
  device_momentum.read(moved);
  std::vector<bf16> result_rounded(list.size());
  rounded.read(result_rounded);
  for (const Parameter& parameter : list.list()) {
    double difference = 0.0;
    double change = 0.0;
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      difference += std::pow(double{result[i]} - double{values[i]}, 2.0);
      change += std::pow(double{values[i]} - double{start[i]}, 2.0);
      ASSERT_NEAR(moved[i], momentum[i], 1e-6);
      if (parameter.role == Role::matrix) {
        ASSERT_EQ(result_rounded[i].bits, to_bf16(result[i]).bits);
      }
    }
    EXPECT_EQ(change > 0.0, parameter.role == Role::matrix) << parameter.name;
    EXPECT_LE(std::sqrt(difference), 0.02 * std::sqrt(change)) << parameter.name;
  }
}

}  // namespace
}  // namespace winnow::train
