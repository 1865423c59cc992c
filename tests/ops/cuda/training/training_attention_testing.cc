#include "ops/cuda/training/training_attention_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/cuda/device.h"
#include "base/threads.h"
#include "ops/cpu/attention/attention_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

using winnow::cuda::DeviceBuffer;

std::vector<float> attention_values(std::size_t size, std::uint64_t seed) {
  std::vector<float> x = ops::testing::normal(size, seed);
  for (float& y : x) {
    y = to_float(to_bf16(y));
  }
  return x;
}

// One KV head's part of the reference: no two heads write to the same number.
class HeadReference {
 public:
  HeadReference(const TrainingCase& c, const TrainingOperands& operands, TrainingReference& result,
                std::size_t head)
      : c_(c),
        in_(operands),
        to_(result),
        head_(head),
        heads_(static_cast<std::size_t>(c.kv_heads)),
        group_(static_cast<std::size_t>(c.group)),
        dim_(static_cast<std::size_t>(c.head_dim)),
        scale_(1.0 / std::sqrt(static_cast<double>(c.head_dim))) {}

  void run() {
    for (std::size_t i = 0; i < in_.first_key.size(); ++i) {
      for (std::size_t g = 0; g < group_; ++g) {
        attend(i, head_ * group_ + g);
      }
    }
  }

 private:
  // A query: its output, and what it adds to gradients.
  void attend(std::size_t i, std::size_t query_head) {
    const std::size_t row = (i * heads_ * group_ + query_head) * dim_;
    const auto first = static_cast<std::size_t>(in_.first_key[i]);
    std::vector<double> weights;
    for (std::size_t j = first; j <= i; ++j) {
      const double bias = beyond(i, j) ? in_.bias[j * heads_ + head_] : 0.0;
      weights.push_back(reaches(i, j) ? capped(i, j, query_head) + bias
                                      : -std::numeric_limits<double>::infinity());
    }
    const double sink =
        c_.has_sinks ? in_.sinks[query_head] : -std::numeric_limits<double>::infinity();
    const double most = std::max(sink, *std::ranges::max_element(weights));
    double sum = std::exp(sink - most);
    for (double& w : weights) {
      w = std::exp(w - most);
      sum += w;
    }
    to_.normalizers[i * heads_ * group_ + query_head] = most + std::log(sum);
    double mean = 0.0;  // of dweights
    std::vector<double> dweights;
    for (std::size_t j = first; j <= i; ++j) {
      double& w = weights[j - first];
      w /= sum;
      dweights.push_back(dot(&in_.dout[row], &in_.values[key(j)]));
      mean += w * dweights.back();
      for (std::size_t d = 0; d < dim_; ++d) {
        to_.out[row + d] += w * in_.values[key(j) + d];
        to_.dvalues[key(j) + d] += w * in_.dout[row + d];
      }
    }
    if (c_.has_sinks) {
      const double weight = std::exp(sink - most) / sum;
      to_.dsinks[query_head] -= weight * mean;
      double size = 0.0;
      for (std::size_t d = 0; d < dim_; ++d) {
        size += std::abs(in_.dout[row + d] * to_.out[row + d]);
      }
      to_.dsinks_size[query_head] = std::hypot(to_.dsinks_size[query_head], weight * size);
    }
    for (std::size_t j = first; j <= i; ++j) {
      const double dscore = weights[j - first] * (dweights[j - first] - mean);
      const double tanh = c_.soft_cap > 0.0 ? capped(i, j, query_head) / c_.soft_cap : 0.0;
      const double dproduct = dscore * (1.0 - tanh * tanh) * scale_;
      for (std::size_t d = 0; d < dim_; ++d) {
        to_.dqueries[row + d] += dproduct * in_.keys[key(j) + d];
        to_.dkeys[key(j) + d] += dproduct * in_.queries[row + d];
      }
      if (beyond(i, j)) {
        to_.dbias[j * heads_ + head_] += dscore;
      }
    }
  }

  // The score without bias.
  [[nodiscard]] double capped(std::size_t i, std::size_t j, std::size_t query_head) const {
    const std::size_t row = (i * heads_ * group_ + query_head) * dim_;
    const double x = dot(&in_.queries[row], &in_.keys[key(j)]) * scale_;
    return c_.soft_cap > 0.0 ? c_.soft_cap * std::tanh(x / c_.soft_cap) : x;
  }
  [[nodiscard]] bool reaches(std::size_t i, std::size_t j) const {
    return c_.reach == 0 || i - j < static_cast<std::size_t>(c_.reach);
  }
  [[nodiscard]] bool beyond(std::size_t i, std::size_t j) const {
    return c_.biased && i - j > static_cast<std::size_t>(c_.window);
  }
  [[nodiscard]] std::size_t key(std::size_t j) const { return (j * heads_ + head_) * dim_; }
  double dot(const float* a, const float* b) const {
    return std::inner_product(a, a + dim_, b, 0.0);
  }

  const TrainingCase& c_;
  const TrainingOperands& in_;
  TrainingReference& to_;
  std::size_t head_;
  std::size_t heads_;
  std::size_t group_;
  std::size_t dim_;
  double scale_;
};

/// A matrix in device memory whose rows are longer than the part used.
template <class T>
class Rows {
 public:
  Rows(std::size_t rows, std::size_t cols)
      : rows_(rows), cols_(cols), buffer_((rows + kSpare) * (cols + kSpare)) {
    buffer_.fill(0xFF);
  }
  Rows(const std::vector<float>& from, std::size_t rows) : rows_(rows), cols_(from.size() / rows) {
    std::vector<T> all((rows_ + kSpare) * (cols_ + kSpare), not_a_number());
    for (std::size_t i = 0; i < from.size(); ++i) {
      all[i / cols_ * (cols_ + kSpare) + i % cols_] = converted(from[i]);
    }
    buffer_ = DeviceBuffer<T>(std::span<const T>(all));
  }

  [[nodiscard]] Matrix<T> matrix() const { return {buffer_.data(), rows_, cols_, cols_ + kSpare}; }
  /// The part used; checks that nothing else has been written.
  [[nodiscard]] std::vector<float> read() const {
    std::vector<T> all(buffer_.size());
    buffer_.read(all);
    std::vector<float> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t col = i % (cols_ + kSpare);
      const float x = to_float(all[i]);
      if (col < cols_ && i / (cols_ + kSpare) < rows_) {
        result.push_back(x);
      } else if (!std::isnan(x)) {
        ADD_FAILURE() << "written outside the matrix, at " << i / (cols_ + kSpare) << ", " << col;
        return result;
      }
    }
    return result;
  }

 private:
  static constexpr std::size_t kSpare = 8;
  static T converted(float x) {
    if constexpr (std::is_same_v<T, bf16>) {
      return to_bf16(x);
    } else {
      return x;
    }
  }
  static T not_a_number() { return converted(std::numeric_limits<float>::quiet_NaN()); }

  std::size_t rows_;
  std::size_t cols_;
  DeviceBuffer<T> buffer_;
};

}  // namespace

TrainingOperands::TrainingOperands(const TrainingCase& c) {
  const auto rows = static_cast<std::size_t>(c.tokens);
  const auto kv_width = static_cast<std::size_t>(c.kv_heads * c.head_dim);
  const auto width = kv_width * static_cast<std::size_t>(c.group);
  const auto seed = static_cast<std::uint64_t>(c.tokens + c.window);
  queries = attention_values(rows * width, seed);
  keys = attention_values(rows * kv_width, seed + 1);
  values = attention_values(rows * kv_width, seed + 2);
  dout = attention_values(rows * width, seed + 3);
  for (int t = 0; t < c.tokens; ++t) {
    first_key.push_back(*std::prev(std::ranges::upper_bound(c.documents, t)));
  }
  if (c.has_sinks) {
    sinks = ops::testing::normal(static_cast<std::size_t>(c.kv_heads * c.group), seed + 5);
  }
  if (c.biased) {
    constexpr float kKinds[] = {0.0F, 0.0F, -std::numeric_limits<float>::infinity(), -300.0F};
    bias = ops::testing::normal(rows * static_cast<std::size_t>(c.kv_heads), seed + 4);
    for (std::size_t i = 0; i < bias.size(); ++i) {
      const std::size_t kind = i * 7 % 10;
      bias[i] = kind < 4 ? kKinds[kind] : -2.0F * std::abs(bias[i]);
    }
  }
}

TrainingReference::TrainingReference(const TrainingCase& c, const TrainingOperands& operands)
    : out(operands.queries.size()),
      normalizers(static_cast<std::size_t>(c.tokens * c.kv_heads * c.group)),
      dqueries(operands.queries.size()),
      dkeys(operands.keys.size()),
      dvalues(operands.keys.size()),
      dbias(operands.bias.size()),
      dsinks(operands.sinks.size()),
      dsinks_size(operands.sinks.size()) {
  parallel_each(static_cast<std::size_t>(c.kv_heads), [&](std::size_t head, int /*thread*/) {
    HeadReference(c, operands, *this, head).run();
  });
}

Results attend(const TrainingCase& c, const TrainingOperands& operands, TrainingKernel kernel) {
  const auto rows = static_cast<std::size_t>(c.tokens);
  const auto kv_heads = static_cast<std::size_t>(c.kv_heads);
  const auto heads = kv_heads * static_cast<std::size_t>(c.group);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  const Rows<bf16> queries(operands.queries, rows);
  const Rows<bf16> keys(operands.keys, rows);
  const Rows<bf16> values(operands.values, rows);
  const Rows<bf16> dout(operands.dout, rows);
  const Rows<float> bias(operands.bias, rows);
  const DeviceBuffer<float> sinks{std::span<const float>(operands.sinks)};
  const DeviceBuffer<std::int32_t> first_key(operands.first_key);
  DeviceBuffer<std::byte> scratch(
      training_attention_scratch_bytes(c.tokens, static_cast<int>(heads), c.head_dim));
  scratch.fill(0xFF);
  const TrainingAttention attention{
      .head_dim = c.head_dim,
      .group = c.group,
      .window = c.window,
      .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
      .first_key = first_key.data(),
      .queries = queries.matrix(),
      .keys = keys.matrix(),
      .values = values.matrix(),
      .bias = c.biased ? Matrix<const float>(bias.matrix()) : Matrix<const float>(),
      .reach = c.reach,
      .soft_cap = static_cast<float>(c.soft_cap),
      .sinks = c.has_sinks ? sinks.data() : nullptr};
  const Rows<bf16> out(rows, heads * dim);
  const Rows<float> normalizers(rows, heads);
  const Rows<bf16> dqueries(rows, heads * dim);
  const Rows<bf16> dkeys(rows, kv_heads * dim);
  const Rows<bf16> dvalues(rows, kv_heads * dim);
  const Rows<float> dbias(rows, c.biased ? kv_heads : 0);
  DeviceBuffer<float> dsinks(operands.sinks.size());
  dsinks.fill(0xFF);
  const winnow::cuda::Stream stream;
  training_attention(attention, out.matrix(), normalizers.matrix(), scratch.data(), stream.get(),
                     kernel);
  training_attention_backward(attention, out.matrix(), normalizers.matrix(), dout.matrix(),
                              {.queries = dqueries.matrix(),
                               .keys = dkeys.matrix(),
                               .values = dvalues.matrix(),
                               .bias = c.biased ? dbias.matrix() : Matrix<float>(),
                               .sinks = c.has_sinks ? dsinks.data() : nullptr},
                              scratch.data(), stream.get(), kernel);
  stream.synchronize();
  std::vector<float> of_sinks(dsinks.size());
  dsinks.read(of_sinks);
  return {out.read(),     normalizers.read(), dqueries.read(), dkeys.read(),
          dvalues.read(), dbias.read(),       of_sinks};
}

void expect_close(const std::vector<float>& a, const std::vector<double>& b, std::size_t width,
                  double most, double most_of_row, const char* name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  double norm = 0.0;
  double difference = 0.0;
  std::vector<std::pair<double, double>> rows(b.size() / width);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = (a[i] - b[i]) * (a[i] - b[i]);
    rows[i / width].first += x;
    rows[i / width].second += b[i] * b[i];
    difference += x;
    norm += b[i] * b[i];
  }
  constexpr double kTiny = 1e-9;  // of the square, where only zeros are expected
  EXPECT_LE(difference, most * most * norm + kTiny) << name;
  const double average = norm / static_cast<double>(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double of_row = std::max(average, rows[i].second);
    ASSERT_LE(rows[i].first, most_of_row * most_of_row * of_row + kTiny) << name << ", row " << i;
  }
}

void expect_right(const TrainingCase& c, std::initializer_list<TrainingKernel> kernels) {
  const TrainingOperands operands(c);
  const TrainingReference exact(c, operands);
  const auto dim = static_cast<std::size_t>(c.head_dim);
  for (const TrainingKernel kernel : kernels) {
    constexpr const char* kNames[] = {"best", "portable", "general"};
    SCOPED_TRACE(kNames[static_cast<std::size_t>(kernel)]);
    const Results results = attend(c, operands, kernel);
    for (std::size_t i = 0; i < exact.normalizers.size(); ++i) {
      ASSERT_NEAR(results.normalizers[i], exact.normalizers[i], 1e-4) << "normalizer " << i;
    }
    // Weights, gradients of scores and results are rounded to bf16, by 2^-9 at most. The output's
    // rounding enters every gradient of a query's scores, whose sum may be small.
    expect_close(results.out, exact.out, dim, 3e-3, 8e-3, "out");
    expect_close(results.dvalues, exact.dvalues, dim, 4e-3, 1e-2, "dvalues");
    expect_close(results.dqueries, exact.dqueries, dim, 6e-3, 4e-2, "dqueries");
    expect_close(results.dkeys, exact.dkeys, dim, 6e-3, 4e-2, "dkeys");
    expect_close(results.dbias, exact.dbias, 1, 6e-3, 4e-2, "dbias");
    for (std::size_t i = 0; i < exact.dsinks.size(); ++i) {
      EXPECT_NEAR(results.dsinks[i], exact.dsinks[i], 6e-3 * exact.dsinks_size[i] + 1e-5)
          << "dsinks " << i;
    }
  }
}

}  // namespace winnow::ops::cuda::testing
