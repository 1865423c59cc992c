#include "train/eviction_control.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/error.h"

namespace winnow::train {

EvictionControl::EvictionControl(const RetrofitOptions& options, int layers, std::size_t per_layer)
    : options_(options), layers_(static_cast<std::size_t>(layers)), per_layer_(per_layer) {
  groups_.resize(options.prior == EvictionPrior::layer ? layers_ : 1, {options.price, 0.0, 0.0});
}

void EvictionControl::begin(double target) {
  target_ = target;
  next_.clear();
  for (Group& group : groups_) {
    PriceControl& control = next_.emplace_back(group.control);
    const double price = control.next(target - group.evicted);
    group.price = options_.eviction == EvictionLoss::price ? price : 0.0;
  }
}

double EvictionControl::price() const {
  double sum = 0.0;
  for (const Group& group : groups_) {
    sum += group.price;
  }
  return sum / static_cast<double>(groups_.size());
}

// Losses are means over all decisions of the update: a layer's own count is weighted by its share.
std::vector<DecisionLoss> EvictionControl::losses(std::span<const std::int64_t> marked,
                                                  std::size_t tokens, std::size_t parts) const {
  assert(marked.size() == layers_ * per_layer_ || !counts_matter());
  const double all = static_cast<double>(layers_ * per_layer_ * tokens * parts);
  const std::size_t size = layers_ * per_layer_ / groups_.size();
  std::vector<DecisionLoss> losses(layers_);
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    const std::size_t index = layer * groups_.size() / layers_;
    DecisionLoss& loss = losses[layer];
    if (options_.eviction == EvictionLoss::price) {
      loss.count = static_cast<float>(-groups_[index].price / all);
    } else {
      const auto own = marked.subspan(index * size, size);
      const auto count = std::accumulate(own.begin(), own.end(), std::int64_t{0});
      const double share = static_cast<double>(count) / static_cast<double>(size * tokens);
      loss.count = share < target_ ? static_cast<float>(-options_.one_sided_weight / all) : 0.0F;
    }
    loss.excess = static_cast<float>(options_.excess / all);
    loss.excess_limit = static_cast<float>(options_.excess_limit);
    loss.spread = spread(layer, all);
  }
  return losses;
}

// The gradient of weight * (mean over layers of the variance of their decisions' shares) with
// respect to a decision's count; the shares are those of the latest update.
std::vector<float> EvictionControl::spread(std::size_t layer, double all) const {
  if (options_.spread_weight == 0.0 || shares_.empty()) {
    return {};
  }
  const auto own = std::span(shares_).subspan(layer * per_layer_, per_layer_);
  const double mean =
      std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(per_layer_);
  std::vector<float> gradient(per_layer_);
  std::ranges::transform(own, gradient.begin(), [&](double share) {
    return static_cast<float>(2.0 * options_.spread_weight * (share - mean) / all);
  });
  return gradient;
}

void EvictionControl::finish(std::span<const double> shares) {
  assert(shares.size() == layers_ * per_layer_ && next_.size() == groups_.size());
  shares_.assign(shares.begin(), shares.end());
  const std::size_t size = shares.size() / groups_.size();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const auto own = shares.subspan(i * size, size);
    groups_[i].evicted = std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(size);
    groups_[i].control = next_[i];
  }
}

std::vector<double> EvictionControl::state() const {
  std::vector<double> state;
  for (const Group& group : groups_) {
    state.push_back(group.control.settled);
    state.push_back(group.evicted);
  }
  if (options_.spread_weight != 0.0) {
    state.insert(state.end(), shares_.begin(), shares_.end());
  }
  return state;
}

void EvictionControl::restore(std::span<const double> state) {
  const std::size_t expected = 2 * groups_.size();
  const bool spreads = options_.spread_weight != 0.0 && state.size() > expected;
  require(state.size() == expected + (spreads ? layers_ * per_layer_ : 0),
          "{} numbers about evictions were saved, expected {}", state.size(), expected);
  shares_.assign(state.begin() + static_cast<std::ptrdiff_t>(expected), state.end());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].control.settled = state[2 * i];
    groups_[i].evicted = state[2 * i + 1];
  }
}

}  // namespace winnow::train
