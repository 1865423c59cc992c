// Experts of a few tokens: the CPU's results, and the same bits as among many tokens.
#include "ops/cuda/experts/skinny_experts.h"

#include "base/cuda/on_device.h"
#include "ops/cuda/experts/experts_layer.h"
#include "ops/cuda/experts/experts_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

// skinny_experts(), with the next layer's input.
std::vector<float> at_once(const Layer& layer, const std::vector<float>& x,
                           const std::vector<float>& before) {
  const int inner = static_cast<int>(layer.inner);
  const std::size_t rows = x.size() / Layer::kWidth;
  const auto logits = upload(router_logits(layer, x));
  const auto device_x = upload_bf16(x);
  const auto out = upload(before);
  const auto gate_up_bias = upload(layer.gate_up_bias);
  const auto down_bias = upload(layer.down_bias);
  const auto activated =
      poisoned<bf16>(rows * static_cast<std::size_t>(layer.router.active) * layer.inner);
  const auto norm_weight = draw(Layer::kWidth, 9);
  const auto device_norm = upload(norm_weight);
  const auto normed = poisoned<bf16>(x.size());
  const auto squares = poisoned<float>(rows * Layer::kWidth / 16);
  const ExpertsMatrix gate_up{layer.device_gate_up.view(), gate_up_bias.data(), 2 * inner};
  EXPECT_TRUE(takes_skinny_experts(layer.router, layer.activation, gate_up));
  skinny_experts({.router = layer.router,
                  .logits = logits.data(),
                  .x = device_x.data(),
                  .activation = layer.activation,
                  .gate_up = gate_up,
                  .down = {layer.device_down.view(), down_bias.data(), Layer::kWidth},
                  .activated = activated.data(),
                  .residual = {out.data(), device_norm.data(), normed.data(), squares.data()}},
                 static_cast<int>(rows), nullptr);
  auto result = download(out);
  auto products = result;
  for (std::size_t i = 0; i < products.size(); ++i) {
    products[i] *= norm_weight[i % Layer::kWidth];
  }
  expect_close(download(normed), products, 1e-2, "normed");
  expect_close(download(squares), square_sums(result, Layer::kWidth), 1e-5, "square sums");
  return result;
}

TEST_F(CudaExperts, OfVeryFewTokensGiveWhatTheCpuGives) {
  for (const auto& [source, format, tolerance] : kFormats) {
    SCOPED_TRACE(format_name(format));
    for (const std::size_t which : {0U, 1U, 2U, 3U, 4U, 6U}) {
      SCOPED_TRACE(which);
      const float limit = which == 2 ? 7.0F : 0.0F;
      const Layer layer(kRouters[which], source, format, {Activation::silu, limit}, false);
      for (const std::size_t tokens : {1, 2, 7}) {
        const auto x = draw_bf16(tokens * Layer::kWidth, 7);
        const auto before = draw(x.size(), 8);
        auto input = x;
        const auto found = at_once(layer, x, before);
        expect_close(found, on_cpu(layer, input, before), tolerance, "out");
        EXPECT_EQ(found, at_once(layer, x, before)) << "not the same bits again";
      }
    }
  }
}

// A layer's results for its rows.
struct Left {
  std::vector<float> hidden;
  std::vector<float> normed;
  std::vector<float> squares;  // row by row

  void append(const Left& rows) {
    hidden.insert(hidden.end(), rows.hidden.begin(), rows.hidden.end());
    normed.insert(normed.end(), rows.normed.begin(), rows.normed.end());
    squares.insert(squares.end(), rows.squares.begin(), rows.squares.end());
  }
  bool operator==(const Left&) const = default;
};

// The whole layer: by the ordered path, or by skinny_experts().
Left after_experts(const Layer& layer, const std::vector<float>& stream, bool in_order) {
  constexpr int kWidth = Layer::kWidth;
  const int inner = static_cast<int>(layer.inner);
  const Router& router = layer.router;
  const int rows = static_cast<int>(stream.size() / kWidth);
  const auto pairs = static_cast<std::size_t>(rows * router.active);
  RoutesMemory memory;
  memory.reserve(router, rows);
  const RoutesView routes = memory.view();
  const auto hidden = upload(stream);
  const auto norm_weight = upload(draw(kWidth, 9));
  const auto router_weight =
      upload_bf16(draw_bf16(static_cast<std::size_t>(router.count) * kWidth, 10, 0.1));
  const auto gate_up_bias = upload(layer.gate_up_bias);
  const auto down_bias = upload(layer.down_bias);
  const auto x = poisoned<bf16>(stream.size());
  const auto activated = poisoned<bf16>(pairs * layer.inner);
  const auto y = poisoned<bf16>(pairs * kWidth);
  const auto normed = poisoned<bf16>(stream.size());
  const auto squares = poisoned<float>(static_cast<std::size_t>(rows * residual_parts(kWidth)));
  const RouterInput input{.hidden = hidden.data(),
                          .norm_weight = norm_weight.data(),
                          .eps = 1e-5F,
                          .cols = kWidth,
                          .weight = router_weight.data()};
  const ResidualStream residual{hidden.data(), norm_weight.data(), normed.data(), squares.data()};
  const ExpertsMatrix gate_up{layer.device_gate_up.view(), gate_up_bias.data(), 2 * inner};
  const ExpertsMatrix down{layer.device_down.view(), down_bias.data(), kWidth};
  if (in_order) {
    norm_and_route(router, routes, input, x.data(), rows, nullptr);
    multiply_experts(router, y.data(), x.data(),
                     network_of(layer, gate_up_bias, down_bias, {nullptr, activated.data()}),
                     routes, rows, nullptr);
    add_expert_outputs(router, residual, y.data(), routes, true, rows, kWidth, nullptr);
  } else {
    norm_and_score(router, routes, input, x.data(), rows, nullptr);
    skinny_experts({.router = router,
                    .logits = routes.logits,
                    .x = x.data(),
                    .activation = layer.activation,
                    .gate_up = gate_up,
                    .down = down,
                    .activated = activated.data(),
                    .residual = residual},
                   rows, nullptr);
  }
  Left left{download(hidden), download(normed), {}};
  const auto by_part = download(squares);
  for (int row = 0; row < rows; ++row) {
    for (int part = 0; part < residual_parts(kWidth); ++part) {
      left.squares.push_back(by_part[static_cast<std::size_t>(part * rows + row)]);
    }
  }
  return left;
}

// With few tokens of an expert, and with so many that a block has 16 of them.
TEST_F(CudaExperts, OfATokenAloneGiveTheBitsOfOneAmongOthers) {
  for (const auto& [source, format, tolerance] : kFormats) {
    SCOPED_TRACE(format_name(format));
    for (const std::size_t which : {0U, 1U, 2U, 3U, 4U, 6U}) {
      SCOPED_TRACE(which);
      const float limit = which == 2 ? 7.0F : 0.0F;
      // Wide enough for several iterations of a warp over its columns, and a rest, in every format.
      const std::size_t inner = kRouters[which].count < 50 ? 608 : 96;
      const Layer layer(kRouters[which], source, format, {Activation::silu, limit}, false, inner);
      for (const std::size_t tokens : {2, 7, 40}) {
        const auto stream = draw(tokens * Layer::kWidth, 7);
        const Left together = after_experts(layer, stream, true);
        Left alone;
        for (std::size_t t = 0; t < tokens; ++t) {
          const auto first = stream.begin() + static_cast<std::ptrdiff_t>(t * Layer::kWidth);
          alone.append(after_experts(layer, {first, first + Layer::kWidth}, false));
        }
        EXPECT_TRUE(alone == together) << tokens << " tokens";
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cuda::testing
