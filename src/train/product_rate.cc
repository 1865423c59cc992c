#include "train/product_rate.h"

#include <algorithm>
#include <vector>

#include "base/stopwatch.h"
#include "ops/context.h"
#include "ops/linear.h"

namespace winnow::train {
namespace {

constexpr double kMeasuredSeconds = 0.5;
constexpr std::size_t kMostRows = 1024;
constexpr std::size_t kMostCols = 2048;  // larger matrices are not faster, and take memory

// A matrix of numbers that products neither overflow nor round to 0.
class Numbers {
 public:
  Numbers(std::size_t rows, std::size_t cols) : rows_(rows), cols_(cols), values_(rows * cols) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(i % 17) / 16.0F - 0.5F;
    }
  }
  ops::Matrix<float> matrix() { return {values_.data(), rows_, cols_}; }
  [[nodiscard]] TensorView tensor() const {
    return {DType::f32,
            {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(cols_)},
            reinterpret_cast<const std::byte*>(values_.data())};
  }

 private:
  std::size_t rows_;
  std::size_t cols_;
  std::vector<float> values_;
};

}  // namespace

double measure_product_rate(const TrainingOptions& options, const model::ModelSpec& base) {
  const std::size_t rows = std::min(options.micro_batch * options.length, kMostRows);
  const auto in = std::min(static_cast<std::size_t>(base.hidden), kMostCols);
  const auto out =
      std::min(static_cast<std::size_t>(std::max(base.dense_width(), base.hidden)), kMostCols);
  Numbers x(rows, in);
  Numbers dx(rows, in);
  Numbers y(rows, out);
  Numbers weight(out, in);
  Numbers dweight(out, in);
  const ops::Weight view = ops::weight_view(weight.tensor());
  ops::Workspace workspace;
  ops::Context context{options.compute, /*deterministic=*/false, &workspace, nullptr};
  const double flops = 6.0 * static_cast<double>(rows * in * out);
  double best = 0.0;
  const Stopwatch all;
  while (best == 0.0 || all.seconds() < kMeasuredSeconds) {
    const Stopwatch one;
    ops::linear(context, y.matrix(), x.matrix(), view);
    ops::linear_backward(context, {dx.matrix(), dweight.matrix(), {}}, y.matrix(), x.matrix(),
                         view);
    best = std::max(best, flops / one.seconds());
  }
  return best;
}

}  // namespace winnow::train
