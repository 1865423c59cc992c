// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), and clipping by the global norm.
#pragma once

#include <cstdint>
#include <span>

#include "base/tensor.h"

namespace winnow::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-5;
};

/// Moments of one array of parameters.
class AdamW {
 public:
  AdamW(const AdamWOptions& options, std::size_t count);

  /// One update of elements [begin, end) of the array, the `step`-th update of these (from 1):
  ///   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
  ///   x -= rate * (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + epsilon) + decay * x)
  /// with g = gradient * gradient_factor. The same bits on any number of threads.
  struct Update {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int64_t step = 1;
    double rate = 0.0;
    double decay = 0.0;
    double gradient_factor = 1.0;
  };
  void apply(const Update& update, std::span<float> values, std::span<const float> gradients);

  [[nodiscard]] std::span<float> first_moments() { return first_.span(); }
  [[nodiscard]] std::span<float> second_moments() { return second_.span(); }
  [[nodiscard]] std::span<const float> first_moments() const { return first_.span(); }
  [[nodiscard]] std::span<const float> second_moments() const { return second_.span(); }

 private:
  AdamWOptions options_;
  Buffer<float> first_;
  Buffer<float> second_;
};

/// The sum of squares, in double, in an order that does not depend on the number of threads.
double sum_of_squares(std::span<const float> x);

/// The factor that limits gradients of this norm to `limit`; 0: no limit.
double clip_factor(double norm, double limit);

}  // namespace winnow::train
