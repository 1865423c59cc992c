#include "ops/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/threads.h"
#include "ops/activation_reference.h"
#include "ops/gradient_testing.h"
#include "ops/linear.h"
#include "ops/owned_weight.h"

namespace winnow::ops {
namespace {

using testing::OwnedWeight;
using testing::Values;

constexpr int kCount = 5;
constexpr int kActive = 2;
constexpr std::size_t kWidth = 32;
constexpr std::size_t kInner = 64;

Router router_of(RouterScore score, bool normalized = false) {
  return {.count = kCount, .active = kActive, .score = score, .normalized = normalized};
}

// A layer of experts in double: all parameters, contiguous.
struct Reference {
  Router router;
  GatedActivation activation;
  bool scales_input = false;
  std::size_t width = kWidth;
  std::size_t inner = kInner;
  std::vector<float> expert_scale = {};

  [[nodiscard]] std::size_t router_size() const { return kCount * (width + 1); }
  [[nodiscard]] std::size_t expert_size() const { return 3 * inner * width + 2 * inner + width; }
  [[nodiscard]] std::size_t size() const { return router_size() + kCount * expert_size(); }

  // Row-major [rows, columns] at `matrix`, followed by a bias.
  static Values linear(const double* matrix, std::size_t rows, const Values& x) {
    Values out(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      out[i] = std::inner_product(x.begin(), x.end(), matrix + i * x.size(),
                                  matrix[rows * x.size() + i]);
    }
    return out;
  }

  [[nodiscard]] Values expert(const double* w, const Values& x) const {
    const std::size_t matrix = inner * (width + 1);
    const Values gate = linear(w, inner, x);
    const Values up = linear(w + matrix, inner, x);
    Values product(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      product[i] = testing::activated(activation, gate[i], up[i]);
    }
    return linear(w + 2 * matrix, width, product);
  }

  // The chosen experts and their weights.
  [[nodiscard]] std::vector<std::pair<std::size_t, double>> routes(const Values& logits) const {
    std::vector<std::size_t> order(kCount);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](auto a, auto b) { return logits[a] > logits[b]; });
    Values scores(kCount);
    double all = 0.0;
    for (std::size_t e = 0; e < kCount; ++e) {
      scores[e] = router.score == RouterScore::sigmoid ? 1.0 / (1.0 + std::exp(-logits[e]))
                                                       : std::exp(logits[e]);
      all += scores[e];
    }
    const double chosen = scores[order[0]] + scores[order[1]];
    const bool divides = router.normalized || router.score == RouterScore::softmax_of_chosen;
    const double by = divides ? chosen : router.score == RouterScore::softmax ? all : 1.0;
    const auto weight_of = [&](std::size_t e) {
      return scores[e] / by * (expert_scale.empty() ? 1.0 : double{expert_scale[e]});
    };
    return {{order[0], weight_of(order[0])}, {order[1], weight_of(order[1])}};
  }

  [[nodiscard]] Values operator()(const Values& parameters, const Values& x) const {
    return (*this)(parameters, x, x);
  }
  [[nodiscard]] Values operator()(const Values& parameters, const Values& x,
                                  const Values& router_input) const {
    Values out(width);
    for (const auto& [e, weight] : routes(linear(parameters.data(), kCount, router_input))) {
      Values input = x;
      for (double& value : input) {
        value *= scales_input ? weight : 1.0;
      }
      const Values y = expert(parameters.data() + router_size() + e * expert_size(), input);
      for (std::size_t i = 0; i < width; ++i) {
        out[i] += (scales_input ? 1.0 : weight) * y[i];
      }
    }
    return out;
  }
};

// The op's view of a reference's parameters, or of their gradients.
template <class T>
struct View {
  const Reference& shape;
  T* memory;

  [[nodiscard]] Matrix<T> matrix(std::size_t at, std::size_t rows, std::size_t cols) const {
    return {memory + at, rows, cols};
  }
  [[nodiscard]] std::size_t at(std::size_t e) const {
    return shape.router_size() + e * shape.expert_size();
  }
  [[nodiscard]] Matrix<T> gate(std::size_t e) const {
    return matrix(at(e), shape.inner, shape.width);
  }
  [[nodiscard]] Matrix<T> up(std::size_t e) const {
    return matrix(at(e) + shape.inner * (shape.width + 1), shape.inner, shape.width);
  }
  [[nodiscard]] Matrix<T> down(std::size_t e) const {
    return matrix(at(e) + 2 * shape.inner * (shape.width + 1), shape.width, shape.inner);
  }
  [[nodiscard]] Matrix<T> router() const { return matrix(0, kCount, shape.width); }
  // The bias that follows a matrix.
  static std::span<T> bias(Matrix<T> matrix) {
    return {matrix.data + matrix.rows * matrix.cols, matrix.rows};
  }
};

Weight weight_of(Matrix<float> x) {
  return {.format = WeightFormat::f32,
          .rows = static_cast<std::int64_t>(x.rows),
          .cols = static_cast<std::int64_t>(x.cols),
          .data = x.data};
}

// Weights of a reference's parameters.
class Layer {
 public:
  Layer(const Reference& reference, std::vector<float>& parameters) {
    const View<float> view{reference, parameters.data()};
    router_ = weight_of(view.router());
    matrices_.reserve(3 * kCount);
    for (std::size_t e = 0; e < kCount; ++e) {
      MlpWeights mlp;
      const auto add = [&](Matrix<float> matrix, const Weight*& weight, const float*& bias) {
        weight = &matrices_.emplace_back(weight_of(matrix));
        bias = View<float>::bias(matrix).data();
      };
      add(view.gate(e), mlp.gate, mlp.gate_bias);
      add(view.up(e), mlp.up, mlp.up_bias);
      add(view.down(e), mlp.down, mlp.down_bias);
      mlp.activation = reference.activation;
      experts_.push_back(mlp);
    }
    weights_ = {.router = &router_,
                .router_bias = View<float>::bias(view.router()).data(),
                .experts = experts_,
                .scales_input = reference.scales_input};
  }
  [[nodiscard]] const ExpertsWeights& weights() const { return weights_; }

 private:
  Weight router_;
  std::vector<Weight> matrices_;
  std::vector<MlpWeights> experts_;
  ExpertsWeights weights_;
};

std::vector<Reference> references() {
  return {{router_of(RouterScore::softmax), {}},
          {router_of(RouterScore::softmax, true), {}},
          {router_of(RouterScore::softmax_of_chosen), {Activation::silu, 1.0F}},
          {router_of(RouterScore::sigmoid), {}, true},
          {router_of(RouterScore::sigmoid, true), {Activation::gelu_tanh}}};
}

Values parameters_of(const Reference& reference) {
  return testing::draw(reference.size(), 11, 0.3);
}

Values row_of(const Values& x, std::size_t t, std::size_t width) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(t * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

TEST(Experts, AddWhatEachTokensExpertsGive) {
  for (const Reference& reference : references()) {
    const Values parameters = parameters_of(reference);
    auto memory = testing::to_floats(parameters);
    const Layer layer(reference, memory);
    const Values x = testing::draw(40 * kWidth, 3);
    auto input = testing::to_floats(x);
    Workspace workspace;
    for (const bool deterministic : {false, true}) {
      Context context{
          .compute = DType::f32, .deterministic = deterministic, .workspace = &workspace};
      for (const std::size_t tokens : {0, 1, 2, 7, 40}) {
        std::vector<float> out(40 * kWidth, 0.5F);
        add_experts(context, reference.router, {out.data(), tokens, kWidth},
                    {input.data(), tokens, kWidth}, layer.weights());
        for (std::size_t t = 0; t < 40; ++t) {
          const Values expected =
              t < tokens ? reference(parameters, row_of(x, t, kWidth)) : Values(kWidth);
          for (std::size_t i = 0; i < kWidth; ++i) {
            ASSERT_NEAR(out[t * kWidth + i], expected[i] + 0.5, 2e-4) << t << " of " << tokens;
          }
        }
      }
    }
  }
}

TEST(Experts, ATokenDoesNotDependOnTheOthers) {
  const Reference reference = references()[1];
  auto memory = testing::to_floats(parameters_of(reference));
  const Layer layer(reference, memory);
  auto input = testing::to_floats(testing::draw(70 * kWidth, 3));
  Workspace workspace;
  Context context{.compute = DType::f32, .deterministic = true, .workspace = &workspace};
  const auto run = [&](std::size_t chunk) {
    std::vector<float> out(70 * kWidth);
    for (std::size_t first = 0; first < 70; first += chunk) {
      const std::size_t rows = std::min(chunk, 70 - first);
      add_experts(context, reference.router, {out.data() + first * kWidth, rows, kWidth},
                  {input.data() + first * kWidth, rows, kWidth}, layer.weights());
    }
    return out;
  };
  const auto whole = run(70);
  for (const std::size_t chunk : {1, 3, 32}) {
    EXPECT_EQ(run(chunk), whole) << chunk;
  }
}

TEST(Experts, ReadOnlyTheActiveOnes) {
  const Reference reference = references()[1];
  auto memory = testing::to_floats(parameters_of(reference));
  const Layer layer(reference, memory);
  auto input = testing::to_floats(testing::draw(kWidth, 3));
  const auto chosen = reference.routes(Reference::linear(
      parameters_of(reference).data(), kCount, row_of(testing::draw(kWidth, 3), 0, kWidth)));
  auto experts = std::vector(layer.weights().experts.begin(), layer.weights().experts.end());
  Weight unreadable = *experts.front().gate;
  unreadable.data = nullptr;
  for (std::size_t e = 0; e < kCount; ++e) {
    if (e != chosen[0].first && e != chosen[1].first) {
      experts[e].gate = experts[e].up = experts[e].down = &unreadable;
    }
  }
  ExpertsWeights weights = layer.weights();
  weights.experts = experts;
  Workspace workspace;
  Context context{.compute = DType::f32, .workspace = &workspace};
  std::vector<float> some(kWidth);
  std::vector<float> all(kWidth);
  // An erroneous read would be at address 0.
  add_experts(context, reference.router, {some.data(), 1, kWidth}, {input.data(), 1, kWidth},
              weights);
  add_experts(context, reference.router, {all.data(), 1, kWidth}, {input.data(), 1, kWidth},
              layer.weights());
  EXPECT_EQ(some, all);
}

TEST(Experts, OfQuantizedWeights) {
  for (const WeightFormat format :
       {WeightFormat::bf16, WeightFormat::int8, WeightFormat::int4, WeightFormat::mxfp4}) {
    std::vector<OwnedWeight> matrices;
    for (std::size_t i = 0; i < 3 * kCount; ++i) {
      matrices.emplace_back(format, i % 3 == 2 ? kWidth : kInner, i % 3 == 2 ? kInner : kWidth, i);
    }
    std::vector<MlpWeights> experts(kCount);
    for (std::size_t e = 0; e < kCount; ++e) {
      experts[e].gate = &matrices[3 * e].view();
      experts[e].up = &matrices[3 * e + 1].view();
      experts[e].down = &matrices[3 * e + 2].view();
    }
    const OwnedWeight router(WeightFormat::f32, kCount, kWidth, 77);
    Workspace workspace;
    Context context{.compute = DType::f32, .workspace = &workspace};
    auto x = testing::normal(9 * kWidth, 5);
    std::vector<float> out(9 * kWidth);
    add_experts(context, router_of(RouterScore::softmax), {out.data(), 9, kWidth},
                {x.data(), 9, kWidth}, {.router = &router.view(), .experts = experts});
    for (std::size_t t = 0; t < 9; ++t) {  // one token at a time: each expert alone
      std::vector<float> logits(kCount);
      linear(context, {logits.data(), 1, kCount}, {x.data() + t * kWidth, 1, kWidth},
             router.view());
      std::vector<std::int32_t> chosen(kActive);
      std::vector<float> scores(kActive);
      route(router_of(RouterScore::softmax),
            {{chosen.data(), 1, kActive}, {scores.data(), 1, kActive}}, {logits.data(), 1, kCount});
      std::vector<float> expected(kWidth);
      for (std::size_t k = 0; k < kActive; ++k) {
        std::vector<float> one(kWidth);
        add_mlp(context, {one.data(), 1, kWidth}, {x.data() + t * kWidth, 1, kWidth},
                experts[static_cast<std::size_t>(chosen[k])]);
        for (std::size_t i = 0; i < kWidth; ++i) {
          expected[i] += scores[k] * one[i];
        }
      }
      for (std::size_t i = 0; i < kWidth; ++i) {
        ASSERT_NEAR(out[t * kWidth + i], expected[i], 1e-3 * std::abs(expected[i]) + 1e-3);
      }
    }
  }
}

TEST(Router, TakesTheFirstOfEqualExperts) {
  const std::vector<float> logits{1.0F, 2.0F, 2.0F, 1.0F, 2.0F};
  std::vector<std::int32_t> chosen(4);
  std::vector<float> weights(4);
  const Router router{.count = 5, .active = 4, .score = RouterScore::softmax_of_chosen};
  route(router, {{chosen.data(), 1, 4}, {weights.data(), 1, 4}}, {logits.data(), 1, 5});
  EXPECT_EQ(chosen, (std::vector<std::int32_t>{1, 2, 4, 0}));
  EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0F), 1.0F, 1e-6F);
}

struct Gradients {
  std::vector<float> x;
  std::vector<float> parameters;
  std::vector<float> router_input = {};
};

constexpr std::size_t kTokens = 6;

// `router_input`: empty if the router takes x.
Gradients gradients_of(const Reference& reference, const Values& parameters, const Values& x,
                       const Values& dout, const Values& router_input = {}) {
  auto memory = testing::to_floats(parameters);
  auto input = testing::to_floats(x);
  auto gradient = testing::to_floats(dout);
  auto routed = testing::to_floats(router_input);
  const Layer layer(reference, memory);
  const std::size_t width = reference.width;
  ExpertsWeights weights = layer.weights();
  Router router = reference.router;
  if (!routed.empty()) {
    weights.router_input = {routed.data(), kTokens, width};
  }
  router.expert_scale = reference.expert_scale.empty() ? nullptr : reference.expert_scale.data();
  Workspace workspace;
  Context context{.compute = DType::f32, .workspace = &workspace};
  std::vector<float> logits(kTokens * kCount);
  std::vector<float> gate(kTokens * kActive * reference.inner);
  std::vector<float> up(gate.size());
  const ExpertsActivations activations{.logits = {logits.data(), kTokens, kCount},
                                       .gate = {gate.data(), kTokens * kActive, reference.inner},
                                       .up = {up.data(), kTokens * kActive, reference.inner}};
  const Matrix<const float> in(input.data(), kTokens, width);
  experts_forward(context, router, {}, in, weights, activations);

  Gradients result{std::vector<float>(x.size()), std::vector<float>(parameters.size()),
                   std::vector<float>(x.size())};
  const View<float> view{reference, result.parameters.data()};
  std::vector<ExpertGradients> experts;
  for (std::size_t e = 0; e < kCount; ++e) {
    experts.push_back({view.gate(e), view.up(e), view.down(e), View<float>::bias(view.gate(e)),
                       View<float>::bias(view.up(e)), View<float>::bias(view.down(e))});
  }
  experts_backward(context, router,
                   {.x = {result.x.data(), kTokens, width},
                    .router_input = {result.router_input.data(), kTokens, width},
                    .router = view.router(),
                    .router_bias = View<float>::bias(view.router()),
                    .experts = experts},
                   {gradient.data(), kTokens, width}, in, weights, activations);
  return result;
}

TEST(Experts, GradientsAreThoseOfFiniteDifferences) {
  for (Reference reference : references()) {
    reference.width = 6;
    reference.inner = 5;
    const Values parameters = testing::draw(reference.size(), 21, 0.5);
    const Values x = testing::draw(kTokens * reference.width, 22);
    const Values dout = testing::draw(x.size(), 23);
    const auto loss = [&](const Values& weights, const Values& input) {
      double sum = 0.0;
      for (std::size_t t = 0; t < kTokens; ++t) {
        const Values out = reference(weights, row_of(input, t, reference.width));
        const Values gradient = row_of(dout, t, reference.width);
        sum += std::inner_product(out.begin(), out.end(), gradient.begin(), 0.0);
      }
      return sum;
    };
    const Gradients gradients = gradients_of(reference, parameters, x, dout);
    testing::expect_gradient([&](const Values& v) { return loss(parameters, v); }, x, gradients.x);
    testing::expect_gradient([&](const Values& v) { return loss(v, x); }, parameters,
                             gradients.parameters);
  }
}

TEST(Experts, ARouterMayTakeAnotherInputAndScaleItsExperts) {
  Reference reference = references()[1];
  reference.width = 6;
  reference.inner = 5;
  reference.expert_scale = {0.5F, 0.0F, 2.0F, -1.0F, 1.5F};
  const Values parameters = testing::draw(reference.size(), 21, 0.5);
  const Values x = testing::draw(kTokens * reference.width, 22);
  const Values routed = testing::draw(x.size(), 24);
  const Values dout = testing::draw(x.size(), 23);
  const auto loss = [&](const Values& weights, const Values& input, const Values& router_input) {
    double sum = 0.0;
    for (std::size_t t = 0; t < kTokens; ++t) {
      const Values out = reference(weights, row_of(input, t, reference.width),
                                   row_of(router_input, t, reference.width));
      const Values gradient = row_of(dout, t, reference.width);
      sum += std::inner_product(out.begin(), out.end(), gradient.begin(), 0.0);
    }
    return sum;
  };
  const Gradients gradients = gradients_of(reference, parameters, x, dout, routed);
  testing::expect_gradient([&](const Values& v) { return loss(parameters, v, routed); }, x,
                           gradients.x);
  testing::expect_gradient([&](const Values& v) { return loss(v, x, routed); }, parameters,
                           gradients.parameters);
  testing::expect_gradient([&](const Values& v) { return loss(parameters, x, v); }, routed,
                           gradients.router_input);
}

TEST(Experts, GradientsAreTheSameBitsOnAnyNumberOfThreads) {
  const Reference reference = references()[0];
  const Values parameters = parameters_of(reference);
  const Values x = testing::draw(kTokens * kWidth, 22);
  const Values dout = testing::draw(x.size(), 23);
  set_threads(1);
  const Gradients one = gradients_of(reference, parameters, x, dout);
  set_threads(3);
  const Gradients three = gradients_of(reference, parameters, x, dout);
  set_threads(0);
  EXPECT_EQ(one.x, three.x);
  EXPECT_EQ(one.parameters, three.parameters);
}

}  // namespace
}  // namespace winnow::ops
