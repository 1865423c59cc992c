#include "train/partition.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace winnow::train {
namespace {

// The nearest end of the matrix that a cut at `at` divides; `at` itself if it divides none.
std::size_t beside_matrix(const ParameterList& list, std::size_t at) {
  const auto parameters = list.list();
  const auto next = std::ranges::upper_bound(parameters, at, {}, &Parameter::offset);
  if (next == parameters.begin() || std::prev(next)->role != Role::matrix) {
    return at;
  }
  const std::size_t begin = std::prev(next)->offset;
  const std::size_t end = next == parameters.end() ? list.size() : next->offset;
  return at - begin <= end - at ? begin : end;
}

// Doubles represent these counts exactly.
std::vector<double> numbers_of(const PassSums& sums) {
  std::vector<double> numbers{sums.loss, sums.norm * sums.norm,
                              sums.decision_norm * sums.decision_norm,
                              static_cast<double>(sums.not_finite)};
  numbers.insert(numbers.end(), sums.marked.begin(), sums.marked.end());
  return numbers;
}

PassSums sums_of(std::span<const double> numbers) {
  PassSums sums{.loss = numbers[0],
                .marked = {},
                .norm = std::sqrt(numbers[1]),
                .decision_norm = std::sqrt(numbers[2]),
                .not_finite = static_cast<int>(numbers[3])};
  for (const double count : numbers.subspan(4)) {
    sums.marked.push_back(static_cast<std::int64_t>(count));
  }
  return sums;
}

// The position of non-finite values is that of the first rank whose loss is not finite.
void add(std::vector<double>& total, std::span<const double> other) {
  const double place = std::isfinite(total[0]) ? other[3] : total[3];
  std::ranges::transform(total, other, total.begin(), std::plus<>());
  total[3] = place;
}

}  // namespace

Partition::Partition(const ParameterList& list, int rank, int ranks, bool whole_matrices)
    : Partition(list, {0, list.size()}, rank, ranks, whole_matrices) {}

Partition::Partition(const ParameterList& list, std::pair<std::size_t, std::size_t> range, int rank,
                     int ranks, bool whole_matrices)
    : rank_(static_cast<std::size_t>(rank)) {
  const auto [begin, end] = range;
  for (int r = 0; r <= ranks; ++r) {
    const std::size_t at = begin + share_of((end - begin) / 8, r, ranks).first * 8;
    cuts_.push_back(whole_matrices ? beside_matrix(list, at) : at);
  }
}

std::size_t Partition::largest() const {
  std::size_t most = 0;
  for (std::size_t i = 1; i < cuts_.size(); ++i) {
    most = std::max(most, cuts_[i] - cuts_[i - 1]);
  }
  return most;
}

std::pair<std::size_t, std::size_t> Partition::own(
    std::pair<std::size_t, std::size_t> range) const {
  return {std::clamp(range.first, begin(), end()), std::clamp(range.second, begin(), end())};
}

std::pair<std::size_t, std::size_t> share_of(std::size_t count, int rank, int ranks) {
  const auto of = static_cast<std::size_t>(ranks);
  const auto r = static_cast<std::size_t>(rank);
  return {count * r / of, count * (r + 1) / of};
}

PassSums sum_over_ranks(parallel::Communicator& ranks, const PassSums& own) {
  if (ranks.size() == 1) {
    return own;
  }
  std::vector<double> total = numbers_of(own);
  const auto all = ranks.gather(std::as_bytes(std::span(total)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    std::vector<double> other(total.size());
    require(all[rank].size() == other.size() * sizeof(double),
            "rank {} sums up {} bytes, rank 0 {}", rank, all[rank].size(),
            other.size() * sizeof(double));
    std::memcpy(other.data(), all[rank].data(), all[rank].size());
    add(total, other);
  }
  ranks.broadcast(std::as_writable_bytes(std::span(total)));
  return sums_of(total);
}

}  // namespace winnow::train
