// The units of work of products of experts with many tokens each: kUnitTiles tiles of an expert's
// outputs times one of its groups of tokens.
#pragma once

#include "ops/cuda/experts/experts_gemm.cuh"

namespace winnow::ops::cuda {

/// The tiles of a unit. With gates, the first half are gates and the second half their ups.
inline constexpr int kUnitTiles = 16;

/// The units of a block, round-robin.
template <bool kGated>
class UnitWalk {
 public:
  /// `groups` are routes.groups, in shared memory: each unit is searched for.
  __device__ UnitWalk(const ExpertsCall& call, const std::int32_t* groups, int experts)
      : routes_(call.routes),
        groups_(groups),
        experts_(experts),
        tiles_(call.matrix.outputs / kTileRows),
        across_((tiles_ / kParts + kTilesAtOnce - 1) / kTilesAtOnce),
        units_(groups[experts] * across_),
        unit_(static_cast<int>(blockIdx.x)) {
    find();
  }
  [[nodiscard]] __device__ bool is_over() const { return unit_ >= units_; }
  __device__ void next() {
    unit_ += static_cast<int>(gridDim.x);
    find();
  }

  [[nodiscard]] __device__ int expert() const { return expert_; }
  [[nodiscard]] __device__ int group() const { return unit_ / across_; }
  /// The places of the group's tokens.
  [[nodiscard]] __device__ int first_place() const { return first_place_; }
  [[nodiscard]] __device__ int end_place() const { return end_place_; }

  /// The first of the outputs, or of the gates.
  [[nodiscard]] __device__ int first_output() const { return first_tile() * kTileRows; }
  /// The expert's tile in a place of the unit, 0 to kUnitTiles - 1, if there is one.
  [[nodiscard]] __device__ int tile(int place) const {
    return first_tile() + place % kTilesAtOnce + place / kTilesAtOnce * (tiles_ / kParts);
  }
  [[nodiscard]] __device__ bool has_tile(int place) const {
    return first_tile() + place % kTilesAtOnce < tiles_ / kParts;
  }
  /// The first tile of the expert among all experts' tiles.
  [[nodiscard]] __device__ std::size_t expert_tile() const {
    return static_cast<std::size_t>(expert_) * static_cast<unsigned>(tiles_);
  }

 private:
  static constexpr int kParts = kGated ? 2 : 1;
  static constexpr int kTilesAtOnce = kUnitTiles / kParts;

  [[nodiscard]] __device__ int first_tile() const { return unit_ % across_ * kTilesAtOnce; }

  // The last expert whose first group is not after the unit's: earlier ones with the same first
  // group have no tokens.
  __device__ void find() {
    if (is_over()) {
      return;
    }
    int low = 0;
    int high = experts_;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (groups_[middle] <= group() ? low : high) = middle;
    }
    expert_ = low;
    first_place_ = routes_.begins[low] + (group() - groups_[low]) * kGroupTokens;
    end_place_ = min(first_place_ + kGroupTokens, routes_.begins[low + 1]);
  }

  const RoutesView& routes_;
  const std::int32_t* groups_;
  int experts_;
  int tiles_;
  int across_;  // units per group
  int units_;
  int unit_;
  int expert_ = 0;
  int first_place_ = 0;
  int end_place_ = 0;
};

}  // namespace winnow::ops::cuda
