// Shared by tests of experts on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/cuda/on_device.h"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/training/training_ops_testing.h"

namespace winnow::ops::cuda::testing {

class CudaExperts : public winnow::testing::OnDevice<::testing::Test> {};

inline std::vector<std::int32_t> download_ints(const std::int32_t* from, std::size_t count) {
  std::vector<std::int32_t> values(count);
  winnow::cuda::check(
      cudaMemcpy(values.data(), from, count * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
      "read");
  return values;
}

inline std::vector<float> download_floats(const float* from, std::size_t count) {
  std::vector<float> values(count);
  winnow::cuda::check(
      cudaMemcpy(values.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost), "read");
  return values;
}

inline constexpr Router kRouters[] = {
    {.count = 6, .active = 2, .score = RouterScore::softmax, .normalized = true},
    {.count = 60, .active = 4, .score = RouterScore::softmax},
    {.count = 32, .active = 4, .score = RouterScore::softmax_of_chosen},
    {.count = 128, .active = 8, .score = RouterScore::softmax, .normalized = true},
    {.count = 16, .active = 1, .score = RouterScore::sigmoid},
    {.count = 300, .active = 7, .score = RouterScore::sigmoid, .normalized = true},
    {.count = 64, .active = 6, .score = RouterScore::softmax, .scale = 2.5F}};

/// Pairs by expert, then by token.
inline void expect_ordered(const RoutesView& routes, const std::vector<std::int32_t>& experts,
                           std::size_t count) {
  std::vector<std::int32_t> pairs(experts.size());
  std::iota(pairs.begin(), pairs.end(), 0);
  std::ranges::stable_sort(
      pairs, {}, [&](std::int32_t pair) { return experts[static_cast<std::size_t>(pair)]; });
  EXPECT_EQ(download_ints(routes.pairs, pairs.size()), pairs);
  const auto places = download_ints(routes.places, pairs.size());
  const auto begins = download_ints(routes.begins, count + 1);
  EXPECT_EQ(begins.front(), 0);
  EXPECT_EQ(begins.back(), static_cast<std::int32_t>(pairs.size()));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(places[static_cast<std::size_t>(pairs[i])], static_cast<std::int32_t>(i));
    const auto expert = static_cast<std::size_t>(experts[static_cast<std::size_t>(pairs[i])]);
    EXPECT_LE(begins[expert], static_cast<std::int32_t>(i));
    EXPECT_GT(begins[expert + 1], static_cast<std::int32_t>(i));
  }
}

}  // namespace winnow::ops::cuda::testing
