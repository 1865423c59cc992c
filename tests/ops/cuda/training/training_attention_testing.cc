#include "ops/cuda/training/training_attention_testing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/threads.h"
#include "ops/cpu/attention/attention_testing.h"

namespace winnow::ops::cuda::testing {
namespace {

std::vector<float> draw(std::size_t size, std::uint64_t seed) {
  std::vector<float> x = ops::testing::normal(size, seed);
  for (float& y : x) {
    y = to_float(to_bf16(y));
  }
  return x;
}

// What one KV head needs of the whole: no two heads write to the same number.
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
      weights.push_back(dot(&in_.queries[row], &in_.keys[key(j)]) * scale_ + bias);
    }
    const double most = *std::ranges::max_element(weights);
    double sum = 0.0;
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
    for (std::size_t j = first; j <= i; ++j) {
      const double dscore = weights[j - first] * (dweights[j - first] - mean);
      for (std::size_t d = 0; d < dim_; ++d) {
        to_.dqueries[row + d] += dscore * scale_ * in_.keys[key(j) + d];
        to_.dkeys[key(j) + d] += dscore * scale_ * in_.queries[row + d];
      }
      if (beyond(i, j)) {
        to_.dbias[j * heads_ + head_] += dscore;
      }
    }
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

}  // namespace

TrainingOperands::TrainingOperands(const TrainingCase& c) {
  const auto rows = static_cast<std::size_t>(c.tokens);
  const auto kv_width = static_cast<std::size_t>(c.kv_heads * c.head_dim);
  const auto width = kv_width * static_cast<std::size_t>(c.group);
  const auto seed = static_cast<std::uint64_t>(c.tokens + c.window);
  queries = draw(rows * width, seed);
  keys = draw(rows * kv_width, seed + 1);
  values = draw(rows * kv_width, seed + 2);
  dout = draw(rows * width, seed + 3);
  for (int t = 0; t < c.tokens; ++t) {
    first_key.push_back(*std::prev(std::ranges::upper_bound(c.documents, t)));
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
      dbias(operands.bias.size()) {
  parallel_each(static_cast<std::size_t>(c.kv_heads), [&](std::size_t head, int /*thread*/) {
    HeadReference(c, operands, *this, head).run();
  });
}

}  // namespace winnow::ops::cuda::testing
