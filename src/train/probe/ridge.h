// Linear regression in closed form, over more data than fits in memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/probe/probe.h"
#include "ops/matrix.h"

namespace winnow::train {

/// The sums that a ridge regression from `inputs` to `outputs` numbers needs, in double.
class RidgeSums {
 public:
  RidgeSums(std::size_t inputs, std::size_t outputs);

  /// Adds rows of x [T, inputs] and what they should give, y [T, outputs].
  void add(ops::Matrix<const float> x, ops::Matrix<const float> y);

  /// W and b with the least sum of |W x + b - y|^2 plus penalty * |W|^2. Throws Error if the data
  /// do not determine them.
  [[nodiscard]] model::LinearScorer solve(double penalty) const;

  [[nodiscard]] std::size_t inputs() const { return inputs_; }
  [[nodiscard]] std::size_t outputs() const { return outputs_; }
  /// visit(std::span<double>) for everything that add() changes, in an order that the sizes
  /// determine: what a file keeps of the sums.
  template <class Visit>
  void visit(const Visit& visit) {
    visit_sums(*this, visit);
  }
  template <class Visit>
  void visit(const Visit& visit) const {
    visit_sums(*this, visit);
  }

 private:
  template <class Self, class Visit>
  static void visit_sums(Self& self, const Visit& visit) {
    visit(std::span(&self.rows_, 1));
    visit(std::span(self.x_));
    visit(std::span(self.y_));
    visit(std::span(self.products_));
    for (std::size_t i = 0; i < self.inputs_; ++i) {
      visit(std::span(self.gram_).subspan(i * self.inputs_ + i, self.inputs_ - i));
    }
  }

  [[nodiscard]] std::vector<double> centered_gram(double penalty) const;
  [[nodiscard]] std::vector<double> centered_products(std::size_t output) const;

  std::size_t inputs_;
  std::size_t outputs_;
  double rows_ = 0.0;
  std::vector<double> x_;         // [inputs]: the sum of x
  std::vector<double> y_;         // [outputs]
  std::vector<double> gram_;      // [inputs, inputs], the part with column >= row: of x^T x
  std::vector<double> products_;  // [outputs, inputs]: of y^T x
};

}  // namespace winnow::train
