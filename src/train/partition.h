// How the ranks of a training run divide the work, and what they sum.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "train/backend.h"
#include "train/parameters.h"

namespace winnow::train {

/// The part of the parameters' flat array, or of a range of it, that each rank updates and whose
/// moments it holds (ZeRO, Rajbhandari et al. 2020). Parts begin at multiples of 8.
class Partition {
 public:
  /// `whole_matrices`: matrices of layers are not cut (Muon updates each as a whole).
  Partition(const ParameterList& list, int rank, int ranks, bool whole_matrices);
  /// For a range, which begins and ends at tensor boundaries.
  Partition(const ParameterList& list, std::pair<std::size_t, std::size_t> range, int rank,
            int ranks, bool whole_matrices);

  /// [ranks + 1]: rank r has [cuts[r], cuts[r + 1]) of the flat array.
  [[nodiscard]] std::span<const std::size_t> cuts() const { return cuts_; }
  /// Where this rank's part begins and ends.
  [[nodiscard]] std::size_t begin() const { return cuts_[rank_]; }
  [[nodiscard]] std::size_t end() const { return cuts_[rank_ + 1]; }
  [[nodiscard]] std::size_t size() const { return end() - begin(); }
  /// Elements of the largest part.
  [[nodiscard]] std::size_t largest() const;

  /// This rank's part of a range: [first, second), which may be empty.
  [[nodiscard]] std::pair<std::size_t, std::size_t> own(
      std::pair<std::size_t, std::size_t> range) const;
  /// This rank's part of a flat array.
  template <class T>
  [[nodiscard]] std::span<T> own(std::span<T> all) const {
    return all.subspan(begin(), size());
  }

 private:
  std::size_t rank_;
  std::vector<std::size_t> cuts_;
};

/// The pieces of work [first, second), of `count`, that rank `rank` of `ranks` does.
std::pair<std::size_t, std::size_t> share_of(std::size_t count, int rank, int ranks);

/// The sums over all ranks, given each rank's own. All ranks call it.
PassSums sum_over_ranks(parallel::Communicator& ranks, const PassSums& own);

}  // namespace winnow::train
