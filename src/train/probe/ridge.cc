#include "train/probe/ridge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"

namespace winnow::train {
namespace {

std::vector<double> as_doubles(ops::Matrix<const float> x) {
  std::vector<double> result(x.rows * x.cols);
  for (std::size_t t = 0; t < x.rows; ++t) {
    std::ranges::copy(x.row(t), &result[t * x.cols]);
  }
  return result;
}

// sum += factor * x
void add_scaled(double* sum, double factor, const double* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += factor * x[i];
  }
}

double dot(const double* a, const double* b, std::size_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

// Replaces the lower triangle of a symmetric matrix [size, size] by L with L L^T = the matrix.
void cholesky(std::vector<double>& matrix, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    double* const row = &matrix[i * size];
    for (std::size_t j = 0; j < i; ++j) {
      const double* const other = &matrix[j * size];
      row[j] = (row[j] - dot(row, other, j)) / other[j];
    }
    const double square = row[i] - dot(row, row, i);
    require(square > 0.0 && std::isfinite(square),
            "the texts do not determine a probe: take more of them, or a larger --ridge");
    row[i] = std::sqrt(square);
  }
}

// Solves L L^T x = b in place.
void solve_cholesky(const std::vector<double>& lower, std::vector<double>& b) {
  const std::size_t size = b.size();
  for (std::size_t i = 0; i < size; ++i) {
    const double* const row = &lower[i * size];
    b[i] = (b[i] - dot(row, b.data(), i)) / row[i];
  }
  for (std::size_t i = size; i-- > 0;) {
    b[i] /= lower[i * size + i];
    add_scaled(b.data(), -b[i], &lower[i * size], i);
  }
}

}  // namespace

RidgeSums::RidgeSums(std::size_t inputs, std::size_t outputs)
    : inputs_(inputs),
      outputs_(outputs),
      x_(inputs),
      y_(outputs),
      gram_(inputs * inputs),
      products_(outputs * inputs) {}

void RidgeSums::add(ops::Matrix<const float> x, ops::Matrix<const float> y) {
  const std::vector<double> inputs = as_doubles(x);
  for (std::size_t t = 0; t < x.rows; ++t) {
    const double* const row = &inputs[t * inputs_];
    add_scaled(x_.data(), 1.0, row, inputs_);
    for (std::size_t o = 0; o < outputs_; ++o) {
      y_[o] += y.row(t)[o];
      add_scaled(&products_[o * inputs_], y.row(t)[o], row, inputs_);
    }
  }
  // Each element is summed in the order of the rows, for any number of threads.
  parallel_each(inputs_, [&](std::size_t i, int) {
    for (std::size_t t = 0; t < x.rows; ++t) {
      const double* const row = &inputs[t * inputs_];
      add_scaled(&gram_[i * inputs_ + i], row[i], row + i, inputs_ - i);
    }
  });
  rows_ += static_cast<double>(x.rows);
}

std::vector<double> RidgeSums::centered_gram(double penalty) const {
  std::vector<double> gram(gram_.size());
  for (std::size_t i = 0; i < inputs_; ++i) {
    for (std::size_t j = i; j < inputs_; ++j) {
      gram[j * inputs_ + i] = gram_[i * inputs_ + j] - x_[i] * x_[j] / rows_;
    }
    gram[i * inputs_ + i] += penalty;
  }
  return gram;
}

std::vector<double> RidgeSums::centered_products(std::size_t output) const {
  const auto first = products_.begin() + static_cast<std::ptrdiff_t>(output * inputs_);
  std::vector<double> products(first, first + static_cast<std::ptrdiff_t>(inputs_));
  add_scaled(products.data(), -y_[output] / rows_, x_.data(), inputs_);
  return products;
}

model::LinearScorer RidgeSums::solve(double penalty) const {
  std::vector<double> lower = centered_gram(penalty);
  cholesky(lower, inputs_);
  model::LinearScorer scorer;
  for (std::size_t o = 0; o < outputs_; ++o) {
    std::vector<double> weights = centered_products(o);
    solve_cholesky(lower, weights);
    scorer.weight.insert(scorer.weight.end(), weights.begin(), weights.end());
    const double bias = (y_[o] - dot(weights.data(), x_.data(), inputs_)) / rows_;
    scorer.bias.push_back(static_cast<float>(bias));
  }
  return scorer;
}

}  // namespace winnow::train
