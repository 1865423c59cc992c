// What each rank holds of the parameters, and of all that is kept for each of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "train/partition.h"
#include "train/zero_stage.h"

namespace winnow::train {

/// Tensors that lie one after another in the flat arrays, of which each rank holds a part.
struct Section {
  static constexpr int kNoLayer = -1;

  int layer = kNoLayer;   // whose tensors they are
  std::size_t begin = 0;  // in the flat arrays
  std::size_t size = 0;
  std::size_t held = 0;  // where this rank's part begins in what it holds
  Partition partition;
};

/// Whose tensor it is, by its name.
int layer_of(std::string_view name);

/// What a rank holds are its parts of all sections, one after another.
class Sharding {
 public:
  /// Stage 1 has one section. In stage 3 each layer has one of every role.
  Sharding(const ParameterList& list, ZeroStage stage, int rank, int ranks, bool whole_matrices);

  /// In the order of the flat arrays.
  [[nodiscard]] std::span<const Section> sections() const { return sections_; }
  /// Elements that this rank holds.
  [[nodiscard]] std::size_t held() const { return held_before(end_); }
  /// Where what it holds of a range of the flat arrays begins and ends in what it holds.
  [[nodiscard]] std::pair<std::size_t, std::size_t> held(
      std::pair<std::size_t, std::size_t> range) const {
    return {held_before(range.first), held_before(range.second)};
  }
  /// Copies what it holds of `values`, the elements of a flat array from `offset` on, to `held`.
  void copy_held(std::size_t offset, std::span<const float> values, std::span<float> held) const;

 private:
  [[nodiscard]] std::size_t held_before(std::size_t at) const;

  std::vector<Section> sections_;
  std::size_t end_;
};

}  // namespace winnow::train
