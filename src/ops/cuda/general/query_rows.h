// How the general attention kernels cut queries into rows.
#pragma once

namespace winnow::ops::cuda {

/// A block takes so many rows: those of a KV head's queries, token by token, row r = token r /
/// group, head r % group; or those of its keys. Each warp has kRowsPerWarp neighbours.
inline constexpr int kRowWarps = 8;
inline constexpr int kRowsPerWarp = 4;
inline constexpr int kRowsPerBlock = kRowWarps * kRowsPerWarp;

/// Blocks that `rows` rows take.
constexpr int row_blocks(int rows) {
  return (rows + kRowsPerBlock - 1) / kRowsPerBlock;
}

}  // namespace winnow::ops::cuda
