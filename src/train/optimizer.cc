#include "train/optimizer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/threads.h"

namespace winnow::train {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 14;

/// body(block, begin, end) for every block of [begin, end).
template <class Body>
void for_blocks(std::size_t begin, std::size_t end, const Body& body) {
  parallel_each((end - begin + kBlock - 1) / kBlock, [&](std::size_t block, int) {
    const std::size_t first = begin + block * kBlock;
    body(block, first, std::min(first + kBlock, end));
  });
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, std::size_t count)
    : options_(options), first_(count), second_(count) {
  std::ranges::fill(first_, 0.0F);
  std::ranges::fill(second_, 0.0F);
}

void AdamW::apply(const Update& update, std::span<float> values, std::span<const float> gradients) {
  assert(values.size() == first_.size() && gradients.size() == first_.size());
  assert(update.begin <= update.end && update.end <= first_.size() && update.step >= 1);
  const auto steps = static_cast<double>(update.step);
  const auto factor = static_cast<float>(update.gradient_factor);
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto epsilon = static_cast<float>(options_.epsilon);
  const auto rate = static_cast<float>(update.rate / (1.0 - std::pow(options_.beta1, steps)));
  const auto correction =
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, steps)));
  const auto kept = static_cast<float>(1.0 - update.rate * update.decay);
  for_blocks(update.begin, update.end, [&](std::size_t, std::size_t begin, std::size_t end) {
    float* const first = first_.data();
    float* const second = second_.data();
    for (std::size_t i = begin; i < end; ++i) {
      const float g = gradients[i] * factor;
      first[i] = beta1 * first[i] + (1.0F - beta1) * g;
      second[i] = beta2 * second[i] + (1.0F - beta2) * g * g;
      values[i] =
          kept * values[i] - rate * first[i] / (std::sqrt(second[i]) * correction + epsilon);
    }
  });
}

double sum_of_squares(std::span<const float> x) {
  std::vector<double> sums((x.size() + kBlock - 1) / kBlock);
  for_blocks(0, x.size(), [&](std::size_t block, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      sums[block] += double{x[i]} * double{x[i]};
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double clip_factor(double norm, double limit) {
  return limit > 0.0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace winnow::train
