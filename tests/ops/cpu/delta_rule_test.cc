#include "ops/delta_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

// A text of random tokens, whose keys are of length 1 as the rule expects.
struct Text {
  DeltaRuleShape shape;
  std::size_t rows;
  std::vector<float> queries, keys, values, decays, rates;

  Text(const DeltaRuleShape& heads, std::size_t tokens, std::uint64_t seed)
      : shape(heads),
        rows(tokens),
        queries(normal(rows * width(shape.key_width()), seed)),
        keys(normal(rows * width(shape.key_width()), seed + 1,
                    1.0 / std::sqrt(double{1.0} * shape.key_dim))),
        values(normal(rows * width(shape.value_width()), seed + 2)),
        decays(normal(rows * width(shape.value_heads), seed + 3)),
        rates(normal(rows * width(shape.value_heads), seed + 4)) {
    const std::vector<float> zeros(width(shape.value_heads), 0.0F);
    delta_gates(matrix(decays, shape.value_heads), matrix(rates, shape.value_heads), zeros, zeros);
  }

  static std::size_t width(int count) { return static_cast<std::size_t>(count); }
  [[nodiscard]] Matrix<float> matrix(std::vector<float>& x, int cols) const {
    return {x.data(), rows, width(cols)};
  }

  // Tokens [first, last).
  [[nodiscard]] DeltaRuleChunk chunk(std::size_t first, std::size_t last, std::vector<float>& state,
                                     std::vector<float>& out) {
    return {.queries = matrix(queries, shape.key_width()).slice(first, last),
            .keys = matrix(keys, shape.key_width()).slice(first, last),
            .values = matrix(values, shape.value_width()).slice(first, last),
            .decays = matrix(decays, shape.value_heads).slice(first, last),
            .rates = matrix(rates, shape.value_heads).slice(first, last),
            .state = state,
            .out = matrix(out, shape.value_width()).slice(first, last)};
  }
};

// The same numbers in double, and the definition.
struct Exact {
  DeltaRuleShape shape;
  std::size_t rows;
  testing::Values queries, keys, values, decays, rates;

  explicit Exact(const Text& text)
      : shape(text.shape),
        rows(text.rows),
        queries(text.queries.begin(), text.queries.end()),
        keys(text.keys.begin(), text.keys.end()),
        values(text.values.begin(), text.values.end()),
        decays(text.decays.begin(), text.decays.end()),
        rates(text.rates.begin(), text.rates.end()) {}

  [[nodiscard]] testing::Values out() const {
    const auto [key_heads, value_heads, key_dim, value_dim, corrects] = shape;
    testing::Values result;
    testing::Values state(Text::width(shape.state_size()), 0.0);
    for (std::size_t t = 0; t < rows; ++t) {
      for (int h = 0; h < value_heads; ++h) {
        const auto at = (t * Text::width(key_heads) + Text::width(h / (value_heads / key_heads))) *
                        Text::width(key_dim);
        const auto gate = t * Text::width(value_heads) + Text::width(h);
        for (int j = 0; j < value_dim; ++j) {
          const auto cell = [&](int i) -> double& {
            return state[Text::width((h * key_dim + i) * value_dim + j)];
          };
          double error = values[gate * Text::width(value_dim) + Text::width(j)];
          for (int i = 0; i < key_dim; ++i) {
            cell(i) *= decays[gate];
            error -= corrects ? cell(i) * keys[at + Text::width(i)] : 0.0;
          }
          double sum = 0.0;
          for (int i = 0; i < key_dim; ++i) {
            cell(i) += keys[at + Text::width(i)] * rates[gate] * error;
            sum += cell(i) * queries[at + Text::width(i)];
          }
          result.push_back(sum);
        }
      }
    }
    return result;
  }
};

constexpr DeltaRuleShape kShapes[] = {
    {1, 1, 1, 1}, {1, 2, 8, 4}, {2, 2, 5, 16}, {2, 6, 24, 40}, {2, 6, 24, 40, false}};

TEST(DeltaRule, IsItsDefinition) {
  for (const DeltaRuleShape& shape : kShapes) {
    Text text(shape, 40, 7);
    std::vector<float> state(Text::width(shape.state_size()), 0.0F);
    std::vector<float> out(text.values.size());
    const DeltaRuleChunk chunk = text.chunk(0, text.rows, state, out);
    delta_rule(shape, {&chunk, 1});
    const testing::Values expected = Exact(text).out();
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i]))) << i;
    }
  }
}

TEST(DeltaRule, CutsAndCompanyChangeNoBit) {
  for (const DeltaRuleShape& shape : kShapes) {
    Text text(shape, 40, 7);
    Text other(shape, 40, 100);
    std::vector<float> state(Text::width(shape.state_size()), 0.0F);
    std::vector<float> whole(text.values.size());
    const DeltaRuleChunk chunk = text.chunk(0, text.rows, state, whole);
    delta_rule(shape, {&chunk, 1});
    for (const std::size_t length : {1U, 3U}) {
      std::vector<float> own_state(state.size(), 0.0F);
      std::vector<float> other_state(state.size(), 0.0F);
      std::vector<float> out(whole.size());
      std::vector<float> other_out(whole.size());
      for (std::size_t first = 0; first < text.rows; first += length) {
        const std::size_t last = std::min(first + length, text.rows);
        const DeltaRuleChunk chunks[] = {other.chunk(0, 5, other_state, other_out),
                                         text.chunk(first, last, own_state, out)};
        delta_rule(shape, chunks);
      }
      EXPECT_EQ(out, whole) << "chunks of " << length;
      EXPECT_EQ(own_state, state);
    }
  }
}

TEST(DeltaRule, Backward) {
  for (const DeltaRuleShape& shape : {DeltaRuleShape{1, 2, 3, 4}, DeltaRuleShape{2, 2, 2, 17},
                                      DeltaRuleShape{1, 2, 3, 4, false}}) {
    for (const std::size_t rows : {3U, 67U}) {  // less than a span, more than one
      Text text(shape, rows, 5);
      const Exact exact(text);
      const auto weights = testing::draw(text.values.size(), 9);
      std::vector<float> state;
      std::vector<float> out(text.values.size());
      const DeltaRuleChunk chunk = text.chunk(0, rows, state, out);
      auto dout = testing::to_floats(weights);
      std::vector<float> dq(text.queries.size()), dk(dq.size()), dv(text.values.size(), 7.0F);
      std::vector<float> dd(text.decays.size()), dr(dd.size());
      const Matrix<const float> gradient = text.matrix(dout, shape.value_width());
      const DeltaRuleGradients gradients{.queries = text.matrix(dq, shape.key_width()),
                                         .keys = text.matrix(dk, shape.key_width()),
                                         .decays = text.matrix(dd, shape.value_heads),
                                         .rates = text.matrix(dr, shape.value_heads),
                                         .values = text.matrix(dv, shape.value_width())};
      delta_rule_backward(shape, {&chunk, 1}, {&gradient, 1}, {&gradients, 1});
      const auto expect = [&](testing::Values Exact::*part, const std::vector<float>& computed) {
        const auto loss = [&](const testing::Values& x) {
          Exact changed = exact;
          changed.*part = x;
          const auto result = changed.out();
          return std::inner_product(result.begin(), result.end(), weights.begin(), 0.0);
        };
        testing::expect_gradient(loss, exact.*part, computed);
      };
      expect(&Exact::queries, dq);
      expect(&Exact::keys, dk);
      expect(&Exact::values, dv);
      expect(&Exact::decays, dd);
      expect(&Exact::rates, dr);
    }
  }
}

TEST(DeltaRule, GatesBackward) {
  constexpr std::size_t kHeads = 3;
  const auto decay_logits = testing::draw(15, 1);
  const auto rate_logits = testing::draw(15, 2);
  const auto weights = testing::draw(30, 3);
  const testing::Values log_decay{-2.0, 0.0, 1.0};
  const testing::Values bias{1.0, -1.0, 0.5};
  const auto loss = [&](const testing::Values& a, const testing::Values& b,
                        const testing::Values& l, const testing::Values& c) {
    double sum = 0.0;
    for (std::size_t i = 0; i < 15; ++i) {
      const double softplus = std::log1p(std::exp(a[i] + c[i % kHeads]));
      sum += weights[i] * std::exp(-std::exp(l[i % kHeads]) * softplus) +
             weights[15 + i] / (1.0 + std::exp(-b[i]));
    }
    return sum;
  };
  auto decays = testing::to_floats(decay_logits);
  const auto logits = decays;
  auto rates = testing::to_floats(rate_logits);
  const auto l = testing::to_floats(log_decay);
  const auto c = testing::to_floats(bias);
  delta_gates({decays.data(), 5, kHeads}, {rates.data(), 5, kHeads}, l, c);
  auto dd = testing::to_floats(weights);
  std::vector<float> dr(dd.begin() + 15, dd.end());
  dd.resize(15);
  std::vector<float> dl(kHeads);
  std::vector<float> dc(kHeads);
  delta_gates_backward({dd.data(), 5, kHeads}, {dr.data(), 5, kHeads}, dl, dc,
                       {logits.data(), 5, kHeads}, {decays.data(), 5, kHeads},
                       {rates.data(), 5, kHeads}, l, c);
  using testing::Values;
  testing::expect_gradient([&](const Values& x) { return loss(x, rate_logits, log_decay, bias); },
                           decay_logits, dd);
  testing::expect_gradient([&](const Values& x) { return loss(decay_logits, x, log_decay, bias); },
                           rate_logits, dr);
  testing::expect_gradient(
      [&](const Values& x) { return loss(decay_logits, rate_logits, x, bias); }, log_decay, dl);
  testing::expect_gradient(
      [&](const Values& x) { return loss(decay_logits, rate_logits, log_decay, x); }, bias, dc);
}

TEST(DeltaRule, GatesAreTheirDefinition) {
  const auto logits = normal(60, 1, 30.0);
  const std::vector<float> log_decay{-2.0F, 0.0F, 1.5F};
  const std::vector<float> bias{1.0F, -3.0F, 0.0F};
  auto decays = logits;
  auto rates = logits;
  delta_gates({decays.data(), 20, 3}, {rates.data(), 20, 3}, log_decay, bias);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = double{logits[i]} + double{bias[i % 3]};
    const double decay = std::exp(-std::exp(double{log_decay[i % 3]}) *
                                  (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))));
    EXPECT_NEAR(decays[i], decay, 1e-6) << x;
    EXPECT_NEAR(rates[i], 1.0 / (1.0 + std::exp(-double{logits[i]})), 1e-6);
  }
}

constexpr RateLimits kLimits{0.3F, 1.2F};

// Rate and decay of state_space_gates() for a logit, in double.
std::pair<double, double> exact_gates(double logit, double log_decay, double bias) {
  const double x = logit + bias;
  const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  const double rate = std::clamp(softplus, double{kLimits.lowest}, double{kLimits.highest});
  return {rate, std::exp(-std::exp(log_decay) * rate)};
}

TEST(StateSpace, GatesAreTheirDefinition) {
  const auto logits = normal(60, 1, 30.0);
  const std::vector<float> log_decay{-2.0F, 0.0F, 1.5F};
  const std::vector<float> bias{1.0F, -3.0F, 0.0F};
  for (const bool limited : {false, true}) {
    auto decays = logits;
    std::vector<float> rates(60);
    state_space_gates({decays.data(), 20, 3}, {rates.data(), 20, 3}, log_decay, bias,
                      limited ? kLimits : RateLimits{});
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double x = double{logits[i]} + double{bias[i % 3]};
      const double plain = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
      const double rate =
          limited ? exact_gates(logits[i], log_decay[i % 3], bias[i % 3]).first : plain;
      EXPECT_NEAR(rates[i], rate, 1e-5 * std::max(1.0, rate)) << x;
      EXPECT_NEAR(decays[i], std::exp(-std::exp(double{log_decay[i % 3]}) * rate), 1e-6);
    }
  }
}

TEST(StateSpace, GatesBackward) {
  constexpr std::size_t kHeads = 3;
  const auto logits = testing::draw(15, 1);
  const auto weights = testing::draw(30, 3);
  const testing::Values log_decay{-2.0, 0.0, 1.0};
  const testing::Values bias{1.0, -1.0, 0.5};
  using testing::Values;
  const auto loss = [&](const Values& a, const Values& l, const Values& c) {
    double sum = 0.0;
    for (std::size_t i = 0; i < 15; ++i) {
      const auto [rate, decay] = exact_gates(a[i], l[i % kHeads], c[i % kHeads]);
      sum += weights[i] * decay + weights[15 + i] * rate;
    }
    return sum;
  };
  const auto before = testing::to_floats(logits);
  auto decays = before;
  std::vector<float> rates(15);
  const auto l = testing::to_floats(log_decay);
  const auto c = testing::to_floats(bias);
  state_space_gates({decays.data(), 5, kHeads}, {rates.data(), 5, kHeads}, l, c, kLimits);
  auto dd = testing::to_floats(weights);
  std::vector<float> dr(dd.begin() + 15, dd.end());
  dd.resize(15);
  std::vector<float> dl(kHeads);
  std::vector<float> dc(kHeads);
  state_space_gates_backward({dd.data(), 5, kHeads}, {dr.data(), 5, kHeads}, dl, dc,
                             {before.data(), 5, kHeads}, {decays.data(), 5, kHeads},
                             {rates.data(), 5, kHeads}, l, c, kLimits);
  testing::expect_gradient([&](const Values& x) { return loss(x, log_decay, bias); }, logits, dd);
  testing::expect_gradient([&](const Values& x) { return loss(logits, x, bias); }, log_decay, dl);
  testing::expect_gradient([&](const Values& x) { return loss(logits, log_decay, x); }, bias, dc);
}

}  // namespace
}  // namespace winnow::ops
