#include "ops/sampled_decisions.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ops/cpu/sigmoid.h"

namespace winnow::ops {
namespace {

// The difference of two Gumbel samples.
float logistic_noise(Random& random) {
  const double uniform = std::max(random.uniform(), 0x1p-53);
  return static_cast<float>(std::log(uniform) - std::log1p(-uniform));
}

// log(1 - sigmoid(x)) = -log(1 + exp(x)).
float log_one_minus_sigmoid(float x) {
  return -(std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x))));
}

}  // namespace

std::int64_t sample_decisions(Random& random, float tau, Matrix<float> noisy, Matrix<float> bias,
                              Matrix<const float> logits) {
  assert(noisy.rows == logits.rows && noisy.cols == logits.cols);
  assert(bias.rows == logits.rows && bias.cols == logits.cols);
  std::int64_t count = 0;
  for (std::size_t t = 0; t < logits.rows; ++t) {
    for (std::size_t h = 0; h < logits.cols; ++h) {
      const float z = (logits.row(t)[h] + logistic_noise(random)) / tau;
      noisy.row(t)[h] = z;
      bias.row(t)[h] = log_one_minus_sigmoid(z);
      count += z > 0.0F ? 1 : 0;
    }
  }
  return count;
}

// d log(1 - s)/dz = -s and ds/dz = s (1 - s), with s = sigmoid(z).
void sample_decisions_backward(float tau, Matrix<float> dlogits, Matrix<const float> noisy,
                               Matrix<const float> dbias, float dcount) {
  assert(dlogits.rows == noisy.rows && dlogits.cols == noisy.cols);
  assert(dbias.rows == noisy.rows && dbias.cols == noisy.cols);
  for (std::size_t t = 0; t < noisy.rows; ++t) {
    for (std::size_t h = 0; h < noisy.cols; ++h) {
      const float soft = sigmoid(noisy.row(t)[h]);
      dlogits.row(t)[h] += soft * (dcount * (1.0F - soft) - dbias.row(t)[h]) / tau;
    }
  }
}

}  // namespace winnow::ops
