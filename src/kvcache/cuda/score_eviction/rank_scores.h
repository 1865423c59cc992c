// Scores that heads of several ranks must agree on (TOVA), in memory that the ranks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "parallel/cuda/rank_sums.h"

namespace winnow::kvcache::cuda {

using parallel::cuda::kMostRanks;

/// The most sequences of a launch.
inline constexpr int kMostMeetingRows = 64;

/// A rank's flags, one per sequence of a launch, in its own memory; zero at first.
struct RowFlags {
  std::uint32_t meetings[kMostMeetingRows];             // how often the ranks have met so far
  std::uint32_t arrived[kMostRanks][kMostMeetingRows];  // by rank: how often it has come
};

/// The ranks that share a layer's heads.
struct RankScores {
  int rank = 0;
  int ranks = 1;
  std::array<RowFlags*, kMostRanks> flags = {};  // by rank
  /// By rank: sums of scores over the rank's heads, [2, kMostMeetingRows, stride].
  std::array<float*, kMostRanks> sums = {};

  /// Of the memory that each rank needs, for rows of `stride` entries.
  static constexpr std::size_t bytes(std::size_t stride) {
    return sizeof(RowFlags) + 2 * kMostMeetingRows * stride * sizeof(float);
  }
  /// `shared`: that memory, by rank.
  RankScores(int own_rank, int count, const std::array<std::byte*, kMostRanks>& shared)
      : rank(own_rank), ranks(count) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      flags[i] = reinterpret_cast<RowFlags*>(shared[i]);
      sums[i] = reinterpret_cast<float*>(shared[i] + sizeof(RowFlags));
    }
  }
  RankScores() = default;
};

}  // namespace winnow::kvcache::cuda
