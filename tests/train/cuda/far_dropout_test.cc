#include "train/cuda/far_dropout.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cuda/device.h"
#include "train/tiny_model.h"

namespace winnow::train {
namespace {

TEST(CudaFarDropout, DrawsWhatTheCpuDraws) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  constexpr std::size_t kTokens = 1000;
  constexpr int kHeads = 3;
  std::vector<std::int32_t> documents;
  for (std::int32_t begin = 0; begin < 1000; begin += 7) {
    documents.push_back(begin);
  }
  const auto first_key = testing::random_batch(kTokens, 9, documents, 1).first_key;
  const FarDropout dropout{.window = 64, .share = 0.9, .mixed = 0.5, .far_heads = {{1, 2}}};
  const std::vector<std::uint64_t> seeds{12345};
  const winnow::cuda::DeviceBuffer<std::int32_t> keys{std::span<const std::int32_t>(first_key)};
  const winnow::cuda::DeviceBuffer<std::uint64_t> seed{std::span<const std::uint64_t>(seeds)};
  const winnow::cuda::DeviceBuffer<float> bias(kTokens * kHeads);
  for (int layer = 0; layer < 3; ++layer) {
    const LocalHeads local = local_heads(dropout, layer);
    std::vector<float> expected(kTokens * kHeads);
    far_bias(local, seeds[0], first_key, {expected.data(), kTokens, kHeads});
    cuda::far_bias(bias.data(), local, seed.data(), keys.data(), kTokens, kHeads, nullptr);
    std::vector<float> drawn(expected.size());
    bias.read(drawn);
    EXPECT_EQ(drawn, expected);
  }
}

}  // namespace
}  // namespace winnow::train
