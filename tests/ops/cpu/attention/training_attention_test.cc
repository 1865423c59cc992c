// Training attention and its gradients against their definition in double.
#include "ops/training_attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/threads.h"
#include "ops/gradient_testing.h"

namespace winnow::ops {
namespace {

using testing::Values;

struct Case {
  int tokens;
  int kv_heads;
  int group;
  int head_dim;
  int window;
  bool biased;
  std::vector<int> documents;  // their first tokens
  int reach = 0;
  double soft_cap = 0.0;
  bool has_sinks = false;
};

// Operands in double, and the results of the definition.
class Problem {
 public:
  explicit Problem(const Case& c)
      : c_(c),
        tokens_(static_cast<std::size_t>(c.tokens)),
        dim_(static_cast<std::size_t>(c.head_dim)),
        heads_(static_cast<std::size_t>(c.kv_heads)),
        group_(static_cast<std::size_t>(c.group)),
        scale_(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
        queries(testing::draw(tokens_ * heads_ * group_ * dim_, 1)),
        keys(testing::draw(tokens_ * heads_ * dim_, 2)),
        values(testing::draw(tokens_ * heads_ * dim_, 3)),
        bias(testing::draw(tokens_ * heads_, 4, 2.0)),
        dout(testing::draw(queries.size(), 5)),
        sinks(testing::draw(c.has_sinks ? heads_ * group_ : 0, 6)) {
    for (double& b : bias) {
      b = c.biased ? -std::abs(b) : 0.0;
    }
    for (int t = 0; t < c.tokens; ++t) {
      const auto next = std::ranges::upper_bound(c.documents, t);
      first_key_.push_back(*std::prev(next));
    }
  }

  // out [T, heads * group * D].
  [[nodiscard]] Values attend(const Values& q, const Values& k, const Values& v, const Values& b,
                              const Values& s) const {
    Values out(q.size());
    for (std::size_t i = 0; i < tokens_; ++i) {
      for (std::size_t h = 0; h < heads_ * group_; ++h) {
        const std::size_t kv = h / group_;
        const double* query = &q[(i * heads_ * group_ + h) * dim_];
        Values weights;
        const std::size_t first = first_seen(i);
        for (std::size_t j = first; j <= i; ++j) {
          double score = std::inner_product(query, query + dim_, &k[(j * heads_ + kv) * dim_], 0.0);
          score *= scale_;
          score = c_.soft_cap > 0.0 ? c_.soft_cap * std::tanh(score / c_.soft_cap) : score;
          score += i - j > static_cast<std::size_t>(c_.window) ? b[j * heads_ + kv] : 0.0;
          weights.push_back(std::exp(score));
        }
        const double sum =
            std::accumulate(weights.begin(), weights.end(), s.empty() ? 0.0 : std::exp(s[h]));
        for (std::size_t j = first; j <= i; ++j) {
          for (std::size_t d = 0; d < dim_; ++d) {
            out[(i * heads_ * group_ + h) * dim_ + d] +=
                weights[j - first] / sum * v[(j * heads_ + kv) * dim_ + d];
          }
        }
      }
    }
    return out;
  }

  [[nodiscard]] double loss(const Values& out) const {
    return std::inner_product(out.begin(), out.end(), dout.begin(), 0.0);
  }

 private:
  [[nodiscard]] std::size_t first_seen(std::size_t i) const {
    const int last_unseen = c_.reach > 0 ? static_cast<int>(i) - c_.reach : -1;
    return static_cast<std::size_t>(std::max(first_key_[i], last_unseen + 1));
  }

  Case c_;
  std::size_t tokens_;
  std::size_t dim_;
  std::size_t heads_;
  std::size_t group_;
  double scale_;

 public:
  Values queries;
  Values keys;
  Values values;
  Values bias;
  Values dout;
  Values sinks;  // of every query head, or empty

  [[nodiscard]] std::span<const std::int32_t> first_key() const { return first_key_; }

 private:
  std::vector<std::int32_t> first_key_;
};

/// The op's results for a problem.
struct Outcome {
  std::vector<float> out;
  std::vector<float> dqueries;
  std::vector<float> dkeys;
  std::vector<float> dvalues;
  std::vector<float> dbias;
  std::vector<float> dsinks;
};

Outcome run(const Case& c, const Problem& problem) {
  const auto tokens = static_cast<std::size_t>(c.tokens);
  const auto kv_width = static_cast<std::size_t>(c.kv_heads * c.head_dim);
  const auto width = kv_width * static_cast<std::size_t>(c.group);
  const auto queries = testing::to_floats(problem.queries);
  const auto keys = testing::to_floats(problem.keys);
  const auto values = testing::to_floats(problem.values);
  const auto bias = testing::to_floats(problem.bias);
  const auto dout = testing::to_floats(problem.dout);
  const auto sinks = testing::to_floats(problem.sinks);
  const auto heads = static_cast<std::size_t>(c.kv_heads);
  const Matrix<const float> bias_matrix(bias.data(), tokens, heads);
  const TrainingAttention attention{.head_dim = c.head_dim,
                                    .group = c.group,
                                    .window = c.window,
                                    .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                                    .first_key = problem.first_key(),
                                    .queries = {queries.data(), tokens, width},
                                    .keys = {keys.data(), tokens, kv_width},
                                    .values = {values.data(), tokens, kv_width},
                                    .bias = c.biased ? bias_matrix : Matrix<const float>(),
                                    .reach = c.reach,
                                    .soft_cap = static_cast<float>(c.soft_cap),
                                    .sinks = sinks};
  Outcome o{std::vector<float>(queries.size(), std::nanf("")),
            std::vector<float>(queries.size()),
            std::vector<float>(keys.size()),
            std::vector<float>(values.size()),
            std::vector<float>(bias.size()),
            std::vector<float>(sinks.size())};
  std::vector<float> normalizers(tokens * heads * static_cast<std::size_t>(c.group));
  const Matrix<float> out(o.out.data(), tokens, width);
  const Matrix<float> normalizer_matrix(normalizers.data(), tokens, normalizers.size() / tokens);
  Workspace workspace;
  training_attention(workspace, attention, out, normalizer_matrix);
  training_attention_backward(
      workspace, attention, out, normalizer_matrix, {dout.data(), tokens, width},
      {.queries = {o.dqueries.data(), tokens, width},
       .keys = {o.dkeys.data(), tokens, kv_width},
       .values = {o.dvalues.data(), tokens, kv_width},
       .bias = c.biased ? Matrix<float>(o.dbias.data(), tokens, heads) : Matrix<float>(),
       .sinks = o.dsinks});
  return o;
}

void expect_gradients(const Case& c) {
  const Problem p(c);
  const Outcome o = run(c, p);
  const Values exact = p.attend(p.queries, p.keys, p.values, p.bias, p.sinks);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(o.out[i], exact[i], 2e-6) << "at " << i;
  }
  testing::expect_gradient(
      [&](const Values& q) { return p.loss(p.attend(q, p.keys, p.values, p.bias, p.sinks)); },
      p.queries, o.dqueries);
  testing::expect_gradient(
      [&](const Values& k) { return p.loss(p.attend(p.queries, k, p.values, p.bias, p.sinks)); },
      p.keys, o.dkeys);
  testing::expect_gradient(
      [&](const Values& v) { return p.loss(p.attend(p.queries, p.keys, v, p.bias, p.sinks)); },
      p.values, o.dvalues);
  if (c.biased) {
    testing::expect_gradient(
        [&](const Values& b) { return p.loss(p.attend(p.queries, p.keys, p.values, b, p.sinks)); },
        p.bias, o.dbias);
  }
  testing::expect_gradient(
      [&](const Values& s) { return p.loss(p.attend(p.queries, p.keys, p.values, p.bias, s)); },
      p.sinks, o.dsinks);
}

TEST(TrainingAttention, Gradients) {
  expect_gradients({1, 1, 1, 8, 4, true, {0}});
  expect_gradients({23, 2, 1, 8, 4, true, {0}});
  expect_gradients({23, 1, 3, 16, 0, true, {0}});
  expect_gradients({70, 1, 1, 8, 5, true, {0}});            // more than a block of keys
  expect_gradients({40, 1, 2, 8, 100, true, {0}});          // a window that covers everything
  expect_gradients({33, 1, 2, 8, 3, false, {0}});           // plain causal attention
  expect_gradients({40, 2, 2, 8, 2, true, {0, 7, 8, 31}});  // packed documents
}

TEST(TrainingAttention, GradientsWithinAReach) {
  expect_gradients({23, 2, 1, 8, 4, true, {0}, 1});    // a reach of only the query itself
  expect_gradients({23, 1, 3, 16, 2, true, {0}, 7});   // farther than the window
  expect_gradients({23, 1, 1, 8, 9, true, {0}, 5});    // less far
  expect_gradients({23, 1, 2, 8, 3, false, {0}, 99});  // everything
  expect_gradients({150, 1, 1, 8, 3, true, {0}, 4});   // blocks that no query of a tile sees
  expect_gradients({40, 2, 2, 8, 2, true, {0, 7, 8, 31}, 6});
}

TEST(TrainingAttention, GradientsOfCappedScores) {
  expect_gradients({23, 2, 1, 8, 4, true, {0}, 0, 1.5});
  expect_gradients({70, 1, 2, 8, 5, true, {0, 33}, 0, 1.5});
  expect_gradients({33, 1, 2, 16, 3, false, {0}, 9, 50.0});
}

TEST(TrainingAttention, GradientsWithSinks) {
  expect_gradients({23, 2, 3, 8, 4, true, {0}, 0, 0.0, true});
  expect_gradients({40, 2, 2, 8, 2, false, {0, 7, 8, 31}, 6, 0.0, true});
  expect_gradients({33, 1, 2, 16, 3, true, {0}, 9, 1.5, true});
}

// Long enough for many tiles and blocks, against the definition and with documents that share
// blocks; finite differences would take too long.
void expect_slope(const Case& c) {
  const Problem p(c);
  const Outcome o = run(c, p);
  const Values exact = p.attend(p.queries, p.keys, p.values, p.bias, p.sinks);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    ASSERT_NEAR(o.out[i], exact[i], 2e-6) << "at " << i;
  }
  // The derivative along a direction, instead of along every axis.
  const auto moved = [](const Values& x, const Values& direction, double step) {
    Values result = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      result[i] += step * direction[i];
    }
    return result;
  };
  const Values q = testing::draw(p.queries.size(), 11);
  const Values k = testing::draw(p.keys.size(), 12);
  const Values v = testing::draw(p.values.size(), 13);
  const Values b = testing::draw(p.bias.size(), 14);
  const Values s = testing::draw(p.sinks.size(), 15);
  const auto loss_at = [&](double step) {
    return p.loss(p.attend(moved(p.queries, q, step), moved(p.keys, k, step),
                           moved(p.values, v, step), moved(p.bias, b, step),
                           moved(p.sinks, s, step)));
  };
  const double slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
  const auto dot = [](const std::vector<float>& gradient, const Values& direction) {
    return std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
  };
  const double computed =
      dot(o.dqueries, q) + dot(o.dkeys, k) + dot(o.dvalues, v) + dot(o.dbias, b) + dot(o.dsinks, s);
  EXPECT_NEAR(computed, slope, 1e-4 * std::abs(slope) + 1e-3);
}

TEST(TrainingAttention, OfALongSequence) {
  expect_slope({300, 2, 3, 24, 64, true, {0, 100, 130, 290}});
  expect_slope({300, 2, 3, 24, 64, true, {0, 100, 130, 290}, 90, 2.0, true});
}

TEST(TrainingAttention, OfAnyHeadDim) {
  for (const int dim : {8, 16, 32, 48, 112, 192, 256}) {
    SCOPED_TRACE(dim);
    expect_slope({150, 2, 2, dim, 20, true, {0, 60}, 50, 3.0, true});
  }
}

TEST(TrainingAttention, TheSameBitsOnAnyNumberOfThreads) {
  const Case c{300, 2, 3, 24, 64, true, {0, 100, 130, 290}, 90, 2.0, true};
  const Problem p(c);
  set_threads(1);
  const Outcome one = run(c, p);
  set_threads(3);
  const Outcome three = run(c, p);
  set_threads(0);
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(one.dqueries, three.dqueries);
  EXPECT_EQ(one.dkeys, three.dkeys);
  EXPECT_EQ(one.dvalues, three.dvalues);
  EXPECT_EQ(one.dbias, three.dbias);
  EXPECT_EQ(one.dsinks, three.dsinks);
}

}  // namespace
}  // namespace winnow::ops
