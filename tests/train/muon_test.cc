#include "train/muon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/threads.h"
#include "train/tiny_model.h"

namespace winnow::train {
namespace {

using Table = std::vector<std::vector<double>>;

std::vector<float> muon_values(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(random.normal()); });
  return values;
}

Table product(const Table& a, const Table& b) {
  Table result(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) {
        result[i][j] += a[i][k] * b[k][j];
      }
    }
  }
  return result;
}

Table transposed(const Table& a) {
  Table result(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) {
      result[j][i] = a[i][j];
    }
  }
  return result;
}

// Newton-Schulz literally from its definition, in double.
Table orthogonalized(Table x) {
  double norm = 0.0;
  for (const auto& row : x) {
    norm += std::inner_product(row.begin(), row.end(), row.begin(), 0.0);
  }
  for (auto& row : x) {
    std::ranges::transform(row, row.begin(), [&](double v) { return v / std::sqrt(norm); });
  }
  for (int step = 0; step < 5; ++step) {
    const Table gram = product(x, transposed(x));
    const Table squared = product(gram, gram);
    Table factor = gram;
    for (std::size_t i = 0; i < gram.size(); ++i) {
      for (std::size_t j = 0; j < gram.size(); ++j) {
        factor[i][j] = (i == j ? 3.4445 : 0.0) - 4.7750 * gram[i][j] + 2.0315 * squared[i][j];
      }
    }
    x = product(factor, x);
  }
  return x;
}

struct Bench {
  explicit Bench(DType compute = DType::f32) {
    context.compute = compute;
    context.workspace = &workspace;
  }
  ops::Workspace workspace;
  ops::Context context;
};

// A model whose matrices are wide, tall and square.
model::ModelSpec config() {
  auto sizes = testing::kTinySizes;
  sizes.heads = 3;
  sizes.kv_heads = 1;
  return testing::tiny_config("qwen2", sizes);
}

TEST(Muon, FollowsItsDefinition) {
  const ParameterList list(config(), Trained::everything);
  const MuonOptions options{.momentum = 0.8};
  auto values = muon_values(list.size(), 1);
  auto momentum = std::vector<float>(list.size());
  std::vector<double> expected(values.begin(), values.end());
  std::vector<double> m(list.size());
  Bench bench;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto gradients = muon_values(list.size(), 10 + step);
    const double rate = 0.1 / static_cast<double>(step);
    apply_muon(bench.context, options, {.rate = rate, .decay = 0.3, .gradient_factor = 0.5}, list,
               values, gradients, momentum);
    for (const Parameter& parameter : list.list()) {
      if (parameter.role != Role::matrix) {
        continue;
      }
      const auto rows = static_cast<std::size_t>(parameter.shape[0]);
      const auto cols = static_cast<std::size_t>(parameter.shape[1]);
      Table direction(rows, std::vector<double>(cols));
      for (std::size_t i = 0; i < parameter.count; ++i) {
        const std::size_t at = parameter.offset + i;
        const double g = 0.5 * double{gradients[at]};
        m[at] = 0.8 * m[at] + 0.2 * g;
        direction[i / cols][i % cols] = 0.8 * m[at] + 0.2 * g;
      }
      direction = rows <= cols ? orthogonalized(direction)
                               : transposed(orthogonalized(transposed(direction)));
      const double scale = rate * 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
      for (std::size_t i = 0; i < parameter.count; ++i) {
        double& x = expected[parameter.offset + i];
        x -= scale * direction[i / cols][i % cols] + rate * 0.3 * x;
      }
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 1e-5) << i;
    ASSERT_NEAR(momentum[i], m[i], 1e-6) << i;
  }
}

TEST(Muon, MovesTheMatricesOfLayersAlone) {
  const ParameterList list(config(), Trained::everything);
  const auto before = muon_values(list.size(), 1);
  const auto gradients = muon_values(list.size(), 2);
  auto values = before;
  std::vector<float> momentum(list.size());
  Bench bench;
  apply_muon(bench.context, {}, {.rate = 0.1, .decay = 0.1}, list, values, gradients, momentum);
  for (const Parameter& parameter : list.list()) {
    const bool moved = values[parameter.offset] != before[parameter.offset];
    const bool matrix = parameter.name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(moved, matrix) << parameter.name;
  }
}

// Whatever a matrix's singular values, they are near 1 afterwards.
TEST(Muon, MakesRowsNearlyOrthonormal) {
  constexpr std::size_t kRows = 48;
  constexpr std::size_t kCols = 96;
  for (const DType compute : {DType::f32, DType::bf16}) {
    Bench bench(compute);
    auto x = muon_values(kRows * kCols, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / kCols;
      x[i] *= 1.0F / static_cast<float>(1 + row);  // singular values of many sizes
    }
    orthogonalize(bench.context, {x.data(), kRows, kCols});
    for (std::uint64_t seed = 2; seed < 22; ++seed) {
      const auto direction = muon_values(kRows, seed);
      double before = 0.0;
      double after = 0.0;
      for (std::size_t j = 0; j < kCols; ++j) {
        double sum = 0.0;
        for (std::size_t i = 0; i < kRows; ++i) {
          sum += double{direction[i]} * double{x[i * kCols + j]};
        }
        after += sum * sum;
      }
      for (const float d : direction) {
        before += double{d} * double{d};
      }
      EXPECT_GT(std::sqrt(after / before), 0.6);
      EXPECT_LT(std::sqrt(after / before), 1.3);
    }
  }
}

TEST(Muon, TakesNothingForAnAnswer) {
  Bench bench;
  std::vector<float> x(12);
  orthogonalize(bench.context, {x.data(), 3, 4});
  EXPECT_TRUE(std::ranges::all_of(x, [](float v) { return v == 0.0F; }));
}

TEST(Muon, TheSameBitsOnAnyNumberOfThreads) {
  auto sizes = testing::kTinySizes;
  sizes.hidden = 384;
  sizes.intermediate = 512;
  const model::ModelSpec large = testing::tiny_config("qwen2", sizes);
  const ParameterList list(large, Trained::everything);
  const auto gradients = muon_values(list.size(), 2);
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto run = [&](int threads) {
      set_threads(threads);
      auto values = muon_values(list.size(), 1);
      std::vector<float> momentum(list.size());
      Bench bench(compute);
      apply_muon(bench.context, {}, {.rate = 0.1, .decay = 0.1}, list, values, gradients, momentum);
      return values;
    };
    const auto one = run(1);
    EXPECT_EQ(run(3), one);
  }
  set_threads(0);
}

}  // namespace
}  // namespace winnow::train
