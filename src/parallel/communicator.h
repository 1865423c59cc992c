// Ranks that compute parts of one model, and what they tell each other.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace winnow::parallel {

/// One rank's end of a group. All ranks call the same functions in the same order; each call waits
/// for the others. It throws Error, naming the rank, when another one has failed or does not come
/// within kPatience. One thread of a rank at a time.
class Communicator {
 public:
  /// Seconds that a rank waits for another one in the middle of a step.
  static constexpr double kPatience = 30.0;

  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  /// At least 1.
  [[nodiscard]] virtual int size() const = 0;

  /// Waits for all ranks, as long as it takes: they may be loading.
  virtual void meet() = 0;
  /// Every rank's `values` become the sum over all of them, added in the order of ranks: the same
  /// bits everywhere, however many values share the call.
  virtual void sum(std::span<float> values) = 0;
  /// The same of one part of `values` per rank: rank r receives the sum of [cuts[r], cuts[r + 1]),
  /// and its other values stay. `cuts` [size() + 1] are the same everywhere and do not fall.
  virtual void reduce_scatter(std::span<float> values, std::span<const std::size_t> cuts) = 0;
  /// Each rank's part of `values` replaces what the others have there.
  virtual void all_gather(std::span<float> values, std::span<const std::size_t> cuts) = 0;
  /// The bytes of rank 0 replace those of the others, who have as many. They wait as long as it
  /// takes: rank 0 may have nothing to do.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  /// Rank 0 receives each rank's bytes, its own first; others receive nothing.
  virtual std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes) = 0;

  /// This rank cannot go on: what all others wait for throws `why`.
  virtual void fail(const std::string& why) noexcept = 0;
};

/// What lies between two neighbours of `cuts`.
inline std::span<float> part_of(std::span<float> values, std::span<const std::size_t> cuts,
                                int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return values.subspan(cuts[r], cuts[r + 1] - cuts[r]);
}

}  // namespace winnow::parallel
