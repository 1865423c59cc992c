#include "ops/cuda/recurrent/recurrent_rows.h"

#include "base/error.h"

namespace winnow::ops::cuda {

void check_taps(int taps) {
  require(taps >= 1 && taps <= kMostTaps,
          "--device cuda: a convolution of {} taps in recurrent layers; up to {} are possible",
          taps, kMostTaps);
}

void check_recurrent(const DeltaRuleShape& heads, int taps) {
  for (const int dim : {heads.key_dim, heads.value_dim}) {
    require(dim % 4 == 0 && dim <= kMostRecurrentDim,
            "--device cuda: recurrent heads of {} channels; a multiple of 4 up to {} is needed",
            dim, kMostRecurrentDim);
  }
  check_taps(taps);
}

}  // namespace winnow::ops::cuda
