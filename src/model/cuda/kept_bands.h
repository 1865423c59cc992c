// Bands of layers whose entries later layers attend to, too.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kvcache/cuda/append/append.h"

namespace winnow::model::cuda {

/// Of one pass over the layers after another; the memory of a pass serves the next one.
class KeptBands {
 public:
  /// A pass begins: what was kept is not needed any more.
  void forget() { used_ = 0; }

  /// A new one for a chunk of up to `tokens` tokens, whose first row of the pass is `row`. `place`:
  /// the layer in the cache.
  kvcache::cuda::Band& make(const kvcache::cuda::DeviceCache& cache, int tokens, int place,
                            std::size_t row);
  /// The one made for them.
  [[nodiscard]] const kvcache::cuda::Band& of(int place, std::size_t row) const;

 private:
  struct Kept {
    int place;
    std::size_t row;
    std::unique_ptr<kvcache::cuda::Band> band;
  };

  std::vector<Kept> kept_;  // of which the first used_ are this pass's
  std::size_t used_ = 0;
};

}  // namespace winnow::model::cuda
