#include "train/far_dropout.h"

#include <algorithm>

namespace winnow::train {

LocalHeads local_heads(const FarDropout& dropout, int layer) {
  LocalHeads local{.layer = layer, .far = 0, .share = dropout.share, .mixed = dropout.mixed};
  for (const FarDropout::Head& head : dropout.far_heads) {
    if (head.layer == layer) {
      local.far |= std::uint64_t{1} << static_cast<unsigned>(head.kv_head);
    }
  }
  return local;
}

void far_bias(const LocalHeads& local, std::uint64_t seed, std::span<const std::int32_t> first_key,
              ops::Matrix<float> bias) {
  for (std::size_t t = 0; t < bias.rows; ++t) {
    const auto row = bias.row(t);
    if (t > 0 && first_key[t] == first_key[t - 1]) {
      std::ranges::copy(bias.row(t - 1), row.begin());
      continue;
    }
    for (std::size_t h = 0; h < row.size(); ++h) {
      row[h] = local.contains(seed, first_key[t], static_cast<int>(h)) ? kHiddenBias : 0.0F;
    }
  }
}

}  // namespace winnow::train
