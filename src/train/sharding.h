// The parts of parameters, gradients and moments that each rank holds.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "train/partition.h"
#include "train/zero_stage.h"

namespace winnow::train {

/// Adjacent tensors in the flat arrays, of which each rank holds a part.
struct Section {
  static constexpr int kNoLayer = -1;

  int layer = kNoLayer;   // the layer of the tensors
  std::size_t begin = 0;  // in the flat arrays
  std::size_t size = 0;
  std::size_t held = 0;  // offset of this rank's part in the array of all that it holds
  Partition partition;
};

/// The layer of a tensor, by its name.
int layer_of(std::string_view name);

/// A rank holds its parts of all sections, one after another.
class Sharding {
 public:
  /// Stage 1 has one section. In stage 3, each layer has one section per role, and embedding and
  /// head have one each.
  Sharding(const ParameterList& list, ZeroStage stage, int rank, int ranks, bool whole_matrices);

  /// In the order of the flat arrays.
  [[nodiscard]] std::span<const Section> sections() const { return sections_; }
  /// Elements that this rank holds.
  [[nodiscard]] std::size_t held() const { return held_before(end_); }
  /// The held elements of a range of the flat arrays, as a range of this rank's own array.
  [[nodiscard]] std::pair<std::size_t, std::size_t> held(
      std::pair<std::size_t, std::size_t> range) const {
    return {held_before(range.first), held_before(range.second)};
  }
  /// Copies the part of `values`, a flat array's elements from `offset` on, that this rank holds.
  void copy_held(std::size_t offset, std::span<const float> values, std::span<float> held) const;

 private:
  [[nodiscard]] std::size_t held_before(std::size_t at) const;

  std::vector<Section> sections_;
  std::size_t end_;
};

}  // namespace winnow::train
