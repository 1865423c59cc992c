#include "model/cuda/kept_bands.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::model::cuda {

kvcache::cuda::Band& KeptBands::make(const kvcache::cuda::DeviceCache& cache, int tokens, int place,
                                     std::size_t row) {
  if (used_ == kept_.size()) {
    kept_.emplace_back();
  }
  Kept& next = kept_[used_++];
  next.place = place;
  next.row = row;
  if (!next.band || next.band->stride < cache.most_ring() + tokens) {
    next.band.reset();  // frees the old memory before the new allocation
    next.band = std::make_unique<kvcache::cuda::Band>(cache, tokens);
  }
  return *next.band;
}

const kvcache::cuda::Band& KeptBands::of(int place, std::size_t row) const {
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(used_);
  const auto found = std::find_if(
      kept_.begin(), end, [&](const Kept& kept) { return kept.place == place && kept.row == row; });
  require(found != end, "layer {} of the cache has kept nothing of row {}", place, row);
  return *found->band;
}

}  // namespace winnow::model::cuda
