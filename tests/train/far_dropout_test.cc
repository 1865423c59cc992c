// Which heads are local, and what these heads see.
#include "train/far_dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/training_attention.h"
#include "train/tiny_model.h"

namespace winnow::train {
namespace {

using ops::Matrix;

TEST(FarDropout, TouchesItsShares) {
  const FarDropout dropout{.window = 8, .share = 0.9, .mixed = 0.3, .far_heads = {{1, 2}}};
  constexpr int kDocuments = 20'000;
  int none = 0;
  int all = 0;
  int local = 0;
  for (int document = 0; document < kDocuments; ++document) {
    int heads = 0;
    for (int layer = 0; layer < 2; ++layer) {
      const LocalHeads heads_of_layer = local_heads(dropout, layer);
      for (int head = 0; head < 4; ++head) {
        const bool is_local = heads_of_layer.contains(5, document, head);
        EXPECT_FALSE(is_local && layer == 1 && head == 2);
        heads += is_local ? 1 : 0;
      }
    }
    none += heads == 0 ? 1 : 0;
    all += heads == 7 ? 1 : 0;
    local += heads;
  }
  const auto share = [](int count) { return count / double{kDocuments}; };
  EXPECT_NEAR(share(none), 0.1 + 0.3 / 128, 0.01);  // 128: seven coin tosses
  EXPECT_NEAR(share(all), 0.6 + 0.3 / 128, 0.015);
  EXPECT_NEAR(share(local), 7 * (0.6 + 0.3 / 2), 0.1);
}

TEST(FarDropout, IsDrawnFromTheSeed) {
  const LocalHeads heads =
      local_heads({.window = 8, .share = 1.0, .mixed = 1.0, .far_heads = {}}, 0);
  const auto draw = [&](std::uint64_t seed) {
    std::vector<bool> drawn;
    for (int document = 0; document < 64; ++document) {
      drawn.push_back(heads.contains(seed, document, document % 3));
    }
    return drawn;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(random.normal()); });
  return values;
}

// Attention with the bias, against softmax with a mask.
TEST(FarDropout, HidesWhatLiesBeyondTheWindow) {
  constexpr std::size_t kTokens = 150;
  constexpr std::size_t kHeads = 3;
  constexpr std::size_t kDim = 8;
  constexpr std::uint64_t kSeed = 3;
  const FarDropout dropout{.window = 5, .share = 1.0, .mixed = 1.0, .far_heads = {{0, 1}}};
  const LocalHeads local = local_heads(dropout, 0);
  const auto first_key = testing::random_batch(kTokens, 9, {0, 40, 41, 60}, 1).first_key;
  const auto q = draw(kTokens * kHeads * kDim, 1);
  const auto k = draw(kTokens * kHeads * kDim, 2);
  const auto v = draw(kTokens * kHeads * kDim, 3);
  std::vector<float> bias(kTokens * kHeads);
  far_bias(local, kSeed, first_key, {bias.data(), kTokens, kHeads});
  std::vector<float> out(q.size());
  std::vector<float> normalizers(kTokens * kHeads);
  ops::Workspace workspace;
  const auto matrix = [](const std::vector<float>& x) {
    return Matrix<const float>(x.data(), kTokens, kHeads * kDim);
  };
  ops::training_attention(workspace,
                          {.head_dim = kDim,
                           .group = 1,
                           .window = dropout.window,
                           .scale = 0.4F,
                           .first_key = first_key,
                           .queries = matrix(q),
                           .keys = matrix(k),
                           .values = matrix(v),
                           .bias = {bias.data(), kTokens, kHeads}},
                          {out.data(), kTokens, kHeads * kDim},
                          {normalizers.data(), kTokens, kHeads});
  std::size_t hidden = 0;
  for (std::size_t i = 0; i < kTokens; ++i) {
    for (std::size_t head = 0; head < kHeads; ++head) {
      const auto at = [&](std::size_t token) { return (token * kHeads + head) * kDim; };
      const bool is_local = local.contains(kSeed, first_key[i], static_cast<int>(head));
      std::vector<double> expected(kDim);
      double total = 0.0;
      for (auto j = static_cast<std::size_t>(first_key[i]); j <= i; ++j) {
        if (is_local && i - j > static_cast<std::size_t>(dropout.window)) {
          ++hidden;
          continue;
        }
        double score = 0.0;
        for (std::size_t d = 0; d < kDim; ++d) {
          score += double{q[at(i) + d]} * double{k[at(j) + d]};
        }
        const double weight = std::exp(0.4 * score);
        total += weight;
        for (std::size_t d = 0; d < kDim; ++d) {
          expected[d] += weight * double{v[at(j) + d]};
        }
      }
      for (std::size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(out[at(i) + d], expected[d] / total, 1e-5) << i << " " << head;
      }
    }
  }
  EXPECT_GT(hidden, 300U);
}

// A model's last-layer output for one document of distinct tokens, in which one may be replaced.
std::vector<float> hidden_of(const FarDropout& dropout, std::size_t tokens, std::size_t other) {
  testing::TinyModel model(testing::tiny_config("llama"), tokens, Keep::nothing);
  Batch batch;
  for (std::size_t t = 0; t < tokens; ++t) {
    batch.tokens.push_back(static_cast<std::int32_t>(t == other ? 32 : t % 32));
  }
  batch.first_key.assign(tokens, 0);
  model.decoder.forward(model.context, model.weights, batch, {.noise = 4, .far_dropout = &dropout});
  const auto hidden = model.decoder.hidden();
  return {hidden.data, hidden.data + tokens * hidden.cols};
}

// Two local layers reach twice the window; with a head that sees far, the whole text.
TEST(FarDropout, LimitsWhatAModelReads) {
  constexpr std::size_t kTokens = 40;
  FarDropout dropout{.window = 6, .share = 1.0, .mixed = 0.0, .far_heads = {}};
  const auto last_that_changes = [&] {
    const auto a = hidden_of(dropout, kTokens, 3);
    const auto b = hidden_of(dropout, kTokens, kTokens);
    std::size_t last = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      last = a[i] == b[i] ? last : i / (a.size() / kTokens);
    }
    return last;
  };
  EXPECT_EQ(last_that_changes(), 3U + 2 * 6);
  dropout.far_heads = {{1, 0}};
  EXPECT_EQ(last_that_changes(), kTokens - 1);
  dropout.far_heads = {};
  dropout.share = 0.0;
  EXPECT_EQ(last_that_changes(), kTokens - 1);
}

}  // namespace
}  // namespace winnow::train
