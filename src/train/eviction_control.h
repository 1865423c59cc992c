// Losses that push decisions towards the target share of evicted keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/decisions.h"
#include "train/options.h"

namespace winnow::train {

/// The losses of decisions, update after update, for the whole model or for each layer separately
/// (RetrofitOptions::prior).
class EvictionControl {
 public:
  /// `per_layer`: decisions per layer.
  EvictionControl(const RetrofitOptions& options, int layers, std::size_t per_layer);

  /// Begins an update with this target share. A failed update is begun again.
  void begin(double target);
  /// The price of a key in this update, mean over layers; 0 for EvictionLoss::one_sided.
  [[nodiscard]] double price() const;
  /// Whether losses() uses the counts of marked keys.
  [[nodiscard]] bool counts_matter() const { return options_.eviction == EvictionLoss::one_sided; }
  /// The loss of each layer for one of the update's `parts`, in which `marked`
  /// [layers * decisions] of `tokens` tokens were marked; empty unless counts_matter().
  [[nodiscard]] std::vector<DecisionLoss> losses(std::span<const std::int64_t> marked,
                                                 std::size_t tokens, std::size_t parts) const;
  /// Ends the update, which evicted these shares [layers * decisions].
  void finish(std::span<const double> shares);

  /// All state that a later process needs to continue.
  [[nodiscard]] std::vector<double> state() const;
  /// Throws Error when it does not have this shape.
  void restore(std::span<const double> state);

 private:
  [[nodiscard]] std::vector<float> spread(std::size_t layer, double all) const;

  /// Decisions with one common price: a layer's, or all.
  struct Group {
    PriceControl control;
    double evicted = 0.0;  // share, in the latest update
    double price = 0.0;    // in the current update
  };

  RetrofitOptions options_;
  std::size_t layers_;
  std::size_t per_layer_;
  std::vector<Group> groups_;
  std::vector<PriceControl> next_;  // the groups' controls once this update is done
  double target_ = 0.0;
  std::vector<double>
      shares_;  // [layers * decisions], in the latest update; only spread() uses them
};

}  // namespace winnow::train
