// Bands of layers whose entries later layers share.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kvcache/cuda/append/append.h"

namespace winnow::model::cuda {

/// The bands of one pass over the layers; the next pass uses their memory again.
class KeptBands {
 public:
  /// Begins a pass: the bands of the last one are not needed any more.
  void forget() { used_ = 0; }

  /// Makes a band for a chunk of up to `tokens` tokens, whose first row in the pass is `row`.
  /// `place`: the layer's index in the cache.
  kvcache::cuda::Band& make(const kvcache::cuda::DeviceCache& cache, int tokens, int place,
                            std::size_t row);
  /// The band that make() returned for the same `place` and `row`.
  [[nodiscard]] const kvcache::cuda::Band& of(int place, std::size_t row) const;

 private:
  struct Kept {
    int place;
    std::size_t row;
    std::unique_ptr<kvcache::cuda::Band> band;
  };

  std::vector<Kept> kept_;  // the first used_ belong to this pass
  std::size_t used_ = 0;
};

}  // namespace winnow::model::cuda
