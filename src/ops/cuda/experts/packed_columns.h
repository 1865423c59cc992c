// Columns of the tokens that experts_pack.cu packs.
#pragma once

namespace winnow::ops::cuda {

/// With the zeros behind them, which make whole stages in every format.
constexpr int packed_columns(int cols) {
  constexpr int kStage = 128;
  return (cols + kStage - 1) / kStage * kStage;
}

}  // namespace winnow::ops::cuda
