#include "ops/segment_average.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "ops/cpu/rows.h"

namespace winnow::ops {
namespace {

/// One KV head's operands, and the entries that state i averages.
class HeadView {
 public:
  HeadView(const SegmentAverage& average, std::size_t head) : average_(average), head_(head) {}

  [[nodiscard]] std::size_t first(std::size_t i) const {
    const auto span = static_cast<std::size_t>(average_.span);
    return std::max(static_cast<std::size_t>(average_.first_key[i]), i + 1 - std::min(i + 1, span));
  }
  [[nodiscard]] float alpha(std::size_t i) const { return average_.alphas.row(i)[head_]; }
  [[nodiscard]] float omega(std::size_t i) const { return average_.omegas.row(i)[head_]; }
  [[nodiscard]] std::span<const float> key(std::size_t i) const { return of(average_.keys, i); }
  [[nodiscard]] std::span<const float> value(std::size_t i) const { return of(average_.values, i); }
  /// This head's columns of row i.
  template <class T>
  [[nodiscard]] std::span<T> of(Matrix<T> x, std::size_t i) const {
    const auto dim = static_cast<std::size_t>(average_.head_dim);
    return {x.row(i).data() + head_ * dim, dim};
  }

  /// products[j - first(i)] = prod_{l = j + 1..i} alpha_l; returns z_i.
  float weigh(std::size_t i, std::span<float> products) const {
    const std::size_t begin = first(i);
    float product = 1.0F;
    float sum = 0.0F;
    for (std::size_t j = i + 1; j-- > begin;) {
      products[j - begin] = product;
      sum += omega(j) * product;
      product *= alpha(j);
    }
    return sum;
  }

 private:
  const SegmentAverage& average_;
  std::size_t head_;
};

void add_scaled(std::span<float> to, std::span<const float> from, float factor) {
  for (std::size_t d = 0; d < to.size(); ++d) {
    to[d] += factor * from[d];
  }
}

/// <gradient, x - mean>.
float along(std::span<const float> gradient, std::span<const float> x,
            std::span<const float> mean) {
  float sum = 0.0F;
  for (std::size_t d = 0; d < x.size(); ++d) {
    sum += gradient[d] * (x[d] - mean[d]);
  }
  return sum;
}

/// Gradients that state i sends back to the entries that it averages, [T * heads][span] each:
/// column n is for entry first(i) + n. States write, entries gather: no two threads share a sum.
struct Shares {
  Matrix<float> means;   // weight_j / z
  Matrix<float> omegas;  // d omega_j
  Matrix<float> alphas;  // d alpha_j
};

// With w_j = omega_j prod alpha, d w_j = <d state, entry_j - state> / z; then
// d alpha_l = prod_{m > l} alpha_m * sum_{j < l} d w_j omega_j prod_{j < m < l} alpha_m.
void share_out(const HeadView& head, std::size_t i, std::span<const float> key,
               std::span<const float> value, std::span<const float> dkey,
               std::span<const float> dvalue, std::size_t row, const Shares& shares) {
  const auto products = shares.omegas.row(row);
  const float total = head.weigh(i, products);
  const std::size_t begin = head.first(i);
  float before = 0.0F;
  for (std::size_t j = begin; j <= i; ++j) {
    const std::size_t n = j - begin;
    const float product = products[n];
    const float dweight =
        (along(dkey, head.key(j), key) + along(dvalue, head.value(j), value)) / total;
    shares.means.row(row)[n] = head.omega(j) * product / total;
    shares.alphas.row(row)[n] = product * before;
    before = head.alpha(j) * before + dweight * head.omega(j);
    products[n] = product * dweight;
  }
}

void check([[maybe_unused]] const SegmentAverage& average) {
  assert(average.span >= 1 && average.first_key.size() == average.keys.rows);
  assert(average.keys.cols == average.alphas.cols * static_cast<std::size_t>(average.head_dim));
  assert(average.values.cols == average.keys.cols && average.values.rows == average.keys.rows);
  assert(average.alphas.rows == average.keys.rows && average.omegas.rows == average.keys.rows);
}

}  // namespace

void segment_average(const SegmentAverage& average, Matrix<float> keys, Matrix<float> values) {
  check(average);
  const auto span = static_cast<std::size_t>(average.span);
  cpu::for_rows(keys.rows, keys.cols * span, [&](std::size_t i) {
    thread_local std::vector<float> products;
    products.resize(span);
    for (std::size_t h = 0; h < average.alphas.cols; ++h) {
      const HeadView head(average, h);
      const float total = head.weigh(i, products);
      const std::size_t begin = head.first(i);
      std::ranges::fill(head.of(keys, i), 0.0F);
      std::ranges::fill(head.of(values, i), 0.0F);
      for (std::size_t j = begin; j <= i; ++j) {
        const float share = head.omega(j) * products[j - begin] / total;
        add_scaled(head.of(keys, i), head.key(j), share);
        add_scaled(head.of(values, i), head.value(j), share);
      }
    }
  });
}

void segment_average_backward(Workspace& workspace, const SegmentAverage& average,
                              Matrix<const float> keys, Matrix<const float> values,
                              Matrix<const float> dkeys, Matrix<const float> dvalues,
                              const SegmentAverageGradients& gradients) {
  check(average);
  const Workspace::Scope scope(workspace);
  const auto span = static_cast<std::size_t>(average.span);
  const std::size_t heads = average.alphas.cols;
  const auto take = [&] {
    return Matrix<float>(workspace.take<float>(keys.rows * heads * span).data(), keys.rows * heads,
                         span);
  };
  const Shares shares{take(), take(), take()};
  cpu::for_rows(keys.rows, keys.cols * span, [&](std::size_t i) {
    for (std::size_t h = 0; h < heads; ++h) {
      const HeadView head(average, h);
      share_out(head, i, head.of(keys, i), head.of(values, i), head.of(dkeys, i),
                head.of(dvalues, i), i * heads + h, shares);
    }
  });
  cpu::for_rows(keys.rows, keys.cols * span, [&](std::size_t j) {
    for (std::size_t h = 0; h < heads; ++h) {
      const HeadView head(average, h);
      for (std::size_t i = j; i < std::min(j + span, keys.rows) && head.first(i) <= j; ++i) {
        const std::size_t row = i * heads + h;
        const std::size_t n = j - head.first(i);
        add_scaled(head.of(gradients.keys, j), head.of(dkeys, i), shares.means.row(row)[n]);
        add_scaled(head.of(gradients.values, j), head.of(dvalues, i), shares.means.row(row)[n]);
        gradients.omegas.row(j)[h] += shares.omegas.row(row)[n];
        gradients.alphas.row(j)[h] += shares.alphas.row(row)[n];
      }
    }
  });
}

}  // namespace winnow::ops
