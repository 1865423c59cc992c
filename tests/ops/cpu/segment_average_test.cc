// DMC's merging against its recurrence, and its gradients against finite differences, in double.
#include "ops/segment_average.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/threads.h"
#include "ops/gradient_testing.h"

namespace winnow::ops {
namespace {

using testing::Values;

struct SegmentCase {
  std::size_t tokens;
  std::size_t heads;
  std::size_t dim;
  int span;
  std::vector<std::int32_t> first_key;
};

SegmentCase make(std::size_t tokens, std::size_t heads, std::size_t dim, int span,
                 const std::vector<std::int32_t>& documents) {
  SegmentCase c{tokens, heads, dim, span, {}};
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto next = std::ranges::upper_bound(documents, static_cast<std::int32_t>(t));
    c.first_key.push_back(*std::prev(next));
  }
  return c;
}

struct Operands {
  Values alphas;
  Values omegas;
  Values keys;
  Values values;
};

Operands draw(const SegmentCase& c) {
  Operands o{testing::draw(c.tokens * c.heads, 1), testing::draw(c.tokens * c.heads, 2),
             testing::draw(c.tokens * c.heads * c.dim, 3),
             testing::draw(c.tokens * c.heads * c.dim, 4)};
  const auto squash = [](double x) { return double{static_cast<float>(1 / (1 + std::exp(-x)))}; };
  std::ranges::transform(o.alphas, o.alphas.begin(), squash);
  std::ranges::transform(o.omegas, o.omegas.begin(), squash);
  o.alphas[3] = 0.0;  // a hard end of a segment
  o.alphas[4] = 1.0;
  return o;
}

// The recurrence, restarted for each state. {keys, values}.
std::pair<Values, Values> average(const SegmentCase& c, const Operands& o) {
  std::pair<Values, Values> out{Values(o.keys.size()), Values(o.values.size())};
  for (std::size_t i = 0; i < c.tokens; ++i) {
    for (std::size_t h = 0; h < c.heads; ++h) {
      const auto from = static_cast<std::size_t>(
          std::max<std::int32_t>(c.first_key[i], static_cast<std::int32_t>(i) - c.span + 1));
      double z = 0.0;
      Values key(c.dim);
      Values value(c.dim);
      for (std::size_t j = from; j <= i; ++j) {
        const double carried = j == from ? 0.0 : o.alphas[j * c.heads + h] * z;
        const double omega = o.omegas[j * c.heads + h];
        z = carried + omega;
        for (std::size_t d = 0; d < c.dim; ++d) {
          const std::size_t at = (j * c.heads + h) * c.dim + d;
          key[d] = (carried * key[d] + omega * o.keys[at]) / z;
          value[d] = (carried * value[d] + omega * o.values[at]) / z;
        }
      }
      std::ranges::copy(key,
                        out.first.begin() + static_cast<std::ptrdiff_t>((i * c.heads + h) * c.dim));
      std::ranges::copy(
          value, out.second.begin() + static_cast<std::ptrdiff_t>((i * c.heads + h) * c.dim));
    }
  }
  return out;
}

struct Result {
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> dalphas;
  std::vector<float> domegas;
  std::vector<float> dkeys;
  std::vector<float> dvalues;
};

Result run_segments(const SegmentCase& c, const Operands& o, const Values& dkeys,
                    const Values& dvalues) {
  const auto alphas = testing::to_floats(o.alphas);
  const auto omegas = testing::to_floats(o.omegas);
  const auto keys = testing::to_floats(o.keys);
  const auto values = testing::to_floats(o.values);
  const auto dk = testing::to_floats(dkeys);
  const auto dv = testing::to_floats(dvalues);
  const std::size_t width = c.heads * c.dim;
  const SegmentAverage op{.head_dim = static_cast<int>(c.dim),
                          .span = c.span,
                          .first_key = c.first_key,
                          .alphas = {alphas.data(), c.tokens, c.heads},
                          .omegas = {omegas.data(), c.tokens, c.heads},
                          .keys = {keys.data(), c.tokens, width},
                          .values = {values.data(), c.tokens, width}};
  Result r{std::vector<float>(keys.size(), std::nanf("")),
           std::vector<float>(keys.size(), std::nanf("")),
           std::vector<float>(alphas.size()),
           std::vector<float>(alphas.size()),
           std::vector<float>(keys.size()),
           std::vector<float>(keys.size())};
  const Matrix<float> out_keys(r.keys.data(), c.tokens, width);
  const Matrix<float> out_values(r.values.data(), c.tokens, width);
  segment_average(op, out_keys, out_values);
  Workspace workspace;
  segment_average_backward(workspace, op, out_keys, out_values, {dk.data(), c.tokens, width},
                           {dv.data(), c.tokens, width},
                           {.alphas = {r.dalphas.data(), c.tokens, c.heads},
                            .omegas = {r.domegas.data(), c.tokens, c.heads},
                            .keys = {r.dkeys.data(), c.tokens, width},
                            .values = {r.dvalues.data(), c.tokens, width}});
  return r;
}

TEST(SegmentAverage, FollowsTheRecurrence) {
  for (const SegmentCase& c : {make(40, 2, 8, 12, {0}), make(40, 1, 8, 40, {0}),
                               make(9, 2, 3, 1, {0}), make(40, 2, 8, 5, {0, 7, 8, 31})}) {
    const Operands o = draw(c);
    const auto [keys, values] = average(c, o);
    const Result r = run_segments(c, o, Values(keys.size()), Values(keys.size()));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_NEAR(r.keys[i], keys[i], 2e-6) << i;
      ASSERT_NEAR(r.values[i], values[i], 2e-6) << i;
    }
  }
}

TEST(SegmentAverage, Gradients) {
  for (const SegmentCase& c : {make(30, 2, 8, 12, {0}), make(20, 1, 4, 20, {0}),
                               make(9, 2, 3, 1, {0}), make(30, 2, 8, 4, {0, 7, 8, 21})}) {
    const Operands o = draw(c);
    const Values dkeys = testing::draw(o.keys.size(), 11);
    const Values dvalues = testing::draw(o.values.size(), 12);
    const Result r = run_segments(c, o, dkeys, dvalues);
    const auto loss = [&](const Operands& at) {
      const auto [keys, values] = average(c, at);
      return std::inner_product(keys.begin(), keys.end(), dkeys.begin(), 0.0) +
             std::inner_product(values.begin(), values.end(), dvalues.begin(), 0.0);
    };
    const auto with = [&](Values Operands::*part) {
      return [&o, &loss, part](const Values& x) {
        Operands changed = o;
        changed.*part = x;
        return loss(changed);
      };
    };
    testing::expect_gradient(with(&Operands::alphas), o.alphas, r.dalphas);
    testing::expect_gradient(with(&Operands::omegas), o.omegas, r.domegas);
    testing::expect_gradient(with(&Operands::keys), o.keys, r.dkeys);
    testing::expect_gradient(with(&Operands::values), o.values, r.dvalues);
  }
}

TEST(SegmentAverage, TheSameBitsOnAnyNumberOfThreads) {
  const SegmentCase c = make(400, 2, 32, 12, {0, 100, 101});
  const Operands o = draw(c);
  const Values dkeys = testing::draw(o.keys.size(), 11);
  set_threads(1);
  const Result one = run_segments(c, o, dkeys, dkeys);
  set_threads(3);
  const Result three = run_segments(c, o, dkeys, dkeys);
  set_threads(0);
  EXPECT_EQ(one.keys, three.keys);
  EXPECT_EQ(one.dalphas, three.dalphas);
  EXPECT_EQ(one.domegas, three.domegas);
  EXPECT_EQ(one.dkeys, three.dkeys);
  EXPECT_EQ(one.dvalues, three.dvalues);
}

}  // namespace
}  // namespace winnow::ops
