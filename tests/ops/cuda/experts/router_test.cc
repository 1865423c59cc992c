// The device's choice of experts, against the CPU's.
#include <cmath>

#include "ops/cuda/experts/experts_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

// Routers that choose by more than logits, with a bias given by the first elements of a constant.
struct Choice {
  Router router;
  bool biased = true;
};
constexpr Choice kChoices[] = {
    {{.count = 12, .active = 3, .score = RouterScore::sigmoid, .normalized = true, .scale = 1.5F}},
    {{.count = 60, .active = 6, .score = RouterScore::softmax}},
    {{.count = 9, .active = 4, .score = RouterScore::softmax_of_chosen}},
    {{.count = 256,
      .active = 8,
      .score = RouterScore::sigmoid,
      .normalized = true,
      .scale = 2.5F,
      .groups = 8,
      .active_groups = 4}},
    {{.count = 80, .active = 3, .score = RouterScore::softmax, .groups = 40, .active_groups = 3},
     false},
    {{.count = 6, .active = 2, .score = RouterScore::sigmoid, .groups = 6, .active_groups = 2}},
    {{.count = 1000, .active = 9, .score = RouterScore::sigmoid}},
    {{.count = 160,
      .active = 6,
      .score = RouterScore::softmax,
      .groups = 8,
      .active_groups = 3,
      .best_of_group = 1},
     false},
    {{.count = 16, .active = 2, .score = RouterScore::sparse_mixer, .nearness = 0.4F}, false}};

// Few distinct numbers: scores with a bias are equal or far apart, whatever a sigmoid's last bit.
// With an offset, no two are opposite: sigmoids of opposite numbers have the same sum as others.
std::vector<float> coarse(std::vector<float> values, float steps, float offset = 0.0F) {
  for (float& value : values) {
    value = std::round(value * steps) / steps + offset;
  }
  return values;
}

// `on_device` is the same router with its bias there.
void expect_routes_of_the_cpu(const Router& router, const Router& on_device) {
  const float steps = router.goes_by_logits() ? 256.0F : 2.0F;
  const auto count = static_cast<std::size_t>(router.count);
  const auto active = static_cast<std::size_t>(router.active);
  for (const int rows : {1, 5, 70, 1000, 5003}) {
    const auto tokens = static_cast<std::size_t>(rows);
    const std::size_t stride = count + 3;
    const auto logits = coarse(draw(tokens * stride, 3), steps, 0.1875F);  // some are equal
    const auto bias = coarse(draw(count, 4), steps);
    std::vector<std::int32_t> experts(tokens * active);
    std::vector<float> weights(tokens * active);
    std::vector<float> sums;
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t e = 0; e < count; ++e) {
        sums.push_back(logits[t * stride + e] + bias[e]);
      }
    }
    ops::route(router, {{experts.data(), tokens, active}, {weights.data(), tokens, active}},
               {sums.data(), tokens, count});

    RoutesMemory memory;
    memory.reserve(router, rows);
    const auto device_logits = upload(logits);
    const auto device_bias = upload(bias);
    route(on_device, memory.view(), device_logits.data(), static_cast<int>(stride),
          device_bias.data(), rows, nullptr);
    winnow::cuda::check(cudaDeviceSynchronize(), "wait");
    EXPECT_EQ(download_ints(memory.view().experts, experts.size()), experts);
    std::vector<float> found(weights.size());
    winnow::cuda::check(cudaMemcpy(found.data(), memory.view().weights,
                                   found.size() * sizeof(float), cudaMemcpyDeviceToHost),
                        "read");
    expect_close(found, weights, 1e-5, "weights");

    expect_ordered(memory.view(), experts, count);
  }
}

TEST_F(CudaExperts, RoutesAreThoseOfTheCpu) {
  for (const Router& router : kRouters) {
    expect_routes_of_the_cpu(router, router);
  }
}

TEST_F(CudaExperts, RoutesByBiasAndGroupAreThoseOfTheCpu) {
  const auto bias = coarse(draw(1000, 9, 0.5), 16.0F);
  const auto device_bias = upload(bias);
  for (const Choice& choice : kChoices) {
    Router router = choice.router;
    Router on_device = router;
    if (choice.biased) {
      router.choice_bias = bias.data();
      on_device.choice_bias = device_bias.data();
    }
    ASSERT_FALSE(router.goes_by_logits());
    expect_routes_of_the_cpu(router, on_device);
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
