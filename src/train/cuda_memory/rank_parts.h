// What each rank holds of a model's flat arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "train/sharding.h"

namespace winnow::train::cuda {

/// The Sharding of every rank, and where the matrices of a place (access.h) lie.
class RankParts {
 public:
  /// [begin, end) of the flat arrays.
  using Range = std::pair<std::size_t, std::size_t>;

  RankParts(const ParameterList& list, int layers, ZeroStage stage, int rank, int ranks,
            bool whole_matrices);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(of_rank_.size()); }
  [[nodiscard]] bool is_layer(int place) const {
    return place >= 0 && place + 2 < static_cast<int>(places_.size());
  }
  [[nodiscard]] const Sharding& own() const { return of_rank_[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] std::size_t largest() const;

  /// Elements of the embedding, the head and the layers' matrices, which come first.
  [[nodiscard]] std::size_t matrices() const { return matrices_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Vectors and decisions.
  [[nodiscard]] Range vectors() const { return {matrices_, size_}; }

  /// The matrices of a place; empty if none of them are in the list.
  [[nodiscard]] Range matrices_of(int place) const {
    return places_[static_cast<std::size_t>(place + 1)];
  }
  /// Elements of the largest layer's matrices, and of the larger one of embedding and head.
  [[nodiscard]] std::size_t largest_layer() const;
  [[nodiscard]] std::size_t largest_end() const;

  /// body(rank, offset in the flat array, offset in what the rank holds, count) for all pieces of a
  /// range.
  template <class Body>
  void for_pieces(Range range, const Body& body) const {
    for (int rank = 0; rank < ranks(); ++rank) {
      for_pieces_of(rank, range, [&](std::size_t at, std::size_t held, std::size_t count) {
        body(rank, at, held, count);
      });
    }
  }
  /// body(offset in the flat array, offset in what the rank holds, count) for one rank's pieces.
  template <class Body>
  void for_pieces_of(int rank, Range range, const Body& body) const {
    for (const Section& section : of_rank_[static_cast<std::size_t>(rank)].sections()) {
      const auto [begin, end] = section.partition.own(range);
      if (begin < end) {
        body(begin, section.held + (begin - section.partition.begin()), end - begin);
      }
    }
  }
  /// body(cuts, offset in what this rank holds) for each section of a range: rank r has
  /// [cuts[r], cuts[r + 1]) of it, counted from the range's begin.
  template <class Body>
  void for_cuts(Range range, const Body& body) const {
    for (const Section& section : own().sections()) {
      const Partition& partition = section.partition;
      std::vector<std::size_t> cuts;
      for (const std::size_t cut : partition.cuts()) {
        cuts.push_back(std::clamp(cut, range.first, range.second) - range.first);
      }
      if (cuts.front() < cuts.back()) {
        const std::size_t begin = partition.own(range).first;
        body(cuts, section.held + (begin - partition.begin()));
      }
    }
  }

 private:
  int rank_;
  std::vector<Sharding> of_rank_;
  std::size_t size_;
  std::size_t matrices_;
  std::vector<Range> places_;  // embedding, layers, head
};

/// Elements of the matrices of a model's largest layer.
std::size_t largest_layer(const model::ModelSpec& spec);

}  // namespace winnow::train::cuda
