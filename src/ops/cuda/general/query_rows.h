// How the general attention kernels divide queries into rows.
#pragma once

namespace winnow::ops::cuda {

/// Rows per block: those of a KV head's queries, token by token (row r = token r /
/// group, head r % group), or those of its keys. Each warp has kRowsPerWarp consecutive rows.
inline constexpr int kRowWarps = 8;
inline constexpr int kRowsPerWarp = 4;
inline constexpr int kRowsPerBlock = kRowWarps * kRowsPerWarp;

/// The number of blocks for `rows` rows.
constexpr int row_blocks(int rows) {
  return (rows + kRowsPerBlock - 1) / kRowsPerBlock;
}

}  // namespace winnow::ops::cuda
