// Communication between ranks, each of which computes a part of one model.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace winnow::parallel {

/// One rank's member of a group. All ranks call the same functions in the same order; each call
/// waits for the others. It throws Error, which names the rank, if another rank has failed or does
/// not arrive within kPatience. For one thread of a rank at a time.
class Communicator {
 public:
  /// The seconds that a rank waits for another one in the middle of a step.
  static constexpr double kPatience = 30.0;

  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  /// At least 1.
  [[nodiscard]] virtual int size() const = 0;
  /// Whether the ranks are threads of one process, so that they may pass pointers to each other.
  [[nodiscard]] virtual bool in_one_process() const { return false; }

  /// Waits for all ranks without a time limit: they may be loading.
  virtual void meet() = 0;
  /// Replaces every rank's `values` by the sum over all ranks. Values are added in the order of
  /// ranks: the result has the same bits on all ranks, however many values share the call.
  virtual void sum(std::span<float> values) = 0;
  /// The same for one part of `values` per rank: rank r receives the sum of [cuts[r], cuts[r + 1]),
  /// and its other values stay. `cuts` [size() + 1] ascend and are the same on all ranks.
  virtual void reduce_scatter(std::span<float> values, std::span<const std::size_t> cuts) = 0;
  /// Copies each rank's part of `values` to all other ranks.
  virtual void all_gather(std::span<float> values, std::span<const std::size_t> cuts) = 0;
  /// Copies rank 0's bytes to the others, whose `bytes` have the same size. They wait without a
  /// time limit: rank 0 may have nothing to do.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  /// Rank 0 receives each rank's bytes, its own first; others receive nothing.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;

  /// Reports that this rank cannot continue: calls of all others throw `why`.
  virtual void fail(const std::string& why) noexcept = 0;
};

/// A rank's part of `values`, between two neighbouring `cuts`.
inline std::span<float> part_of(std::span<float> values, std::span<const std::size_t> cuts,
                                int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return values.subspan(cuts[r], cuts[r + 1] - cuts[r]);
}

}  // namespace winnow::parallel
