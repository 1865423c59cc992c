#include "train/cuda_memory/rank_parts.h"

namespace winnow::train::cuda {
namespace {

// Where the tensor after this one begins.
std::size_t end_of(const Parameter& parameter) {
  return parameter.offset + (parameter.count + 7) / 8 * 8;
}

}  // namespace

RankParts::RankParts(const ParameterList& list, int layers, ZeroStage stage, int rank, int ranks,
                     bool whole_matrices)
    : rank_(rank),
      size_(list.size()),
      matrices_(std::max(list.range(Role::embedding).second, list.range(Role::matrix).second)),
      places_(static_cast<std::size_t>(layers) + 2) {
  for (int r = 0; r < ranks; ++r) {
    of_rank_.emplace_back(list, stage, r, ranks, whole_matrices);
  }
  // The embedding comes before the head. With tied embeddings it is the head.
  for (const Parameter& parameter : list.list()) {
    if (parameter.role == Role::embedding) {
      places_.back() = {parameter.offset, end_of(parameter)};
      if (places_.front().second == 0) {
        places_.front() = places_.back();
      }
    } else if (parameter.role == Role::matrix) {
      Range& place = places_[static_cast<std::size_t>(layer_of(parameter.name)) + 1];
      place = {place.second == 0 ? parameter.offset : place.first, end_of(parameter)};
    }
  }
}

std::size_t RankParts::largest() const {
  std::size_t most = 0;
  for (const Sharding& sharding : of_rank_) {
    most = std::max(most, sharding.held());
  }
  return most;
}

std::size_t RankParts::largest_layer() const {
  std::size_t most = 0;
  for (std::size_t i = 1; i + 1 < places_.size(); ++i) {
    most = std::max(most, places_[i].second - places_[i].first);
  }
  return most;
}

std::size_t largest_layer(const model::ModelSpec& spec) {
  const ParameterList list(spec, Trained::everything);
  return RankParts(list, spec.layer_count(), ZeroStage::everything, 0, 1, false).largest_layer();
}

std::size_t RankParts::largest_end() const {
  const auto size = [](const Range& range) { return range.second - range.first; };
  return std::max(size(places_.front()), size(places_.back()));
}

}  // namespace winnow::train::cuda
