// The number of columns of the tokens that experts_pack.cu packs.
#pragma once

namespace winnow::ops::cuda {

/// Including padding with zeros, which makes whole stages in every format.
constexpr int packed_columns(int cols) {
  constexpr int kStage = 128;
  return (cols + kStage - 1) / kStage * kStage;
}

}  // namespace winnow::ops::cuda
