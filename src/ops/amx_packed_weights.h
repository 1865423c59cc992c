// Copies of weights in the layout that a CPU's tile instructions (AMX) read.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>

#include "base/dtype.h"
#include "base/tensor.h"
#include "ops/weight.h"

namespace winnow::ops {

/// Whether bf16 products use such copies when they exist: the CPU has tile instructions, and this
/// program may use them.
bool cpu_takes_amx_packed_weights();

/// The second operand of a tile product (AMX) consists of pairs of columns: [pair][row][2], 16 rows
/// and 32 columns in 1,024 bytes. A weight copied to this layout is read as one stream; inputs and
/// results stay row-major (cpu/linear/gemm_amx_packed.h). Two tiles of rows that are multiplied
/// together are adjacent: [rows / 32][cols / 32][2][16][16][2]. If 16 rows or fewer remain at the
/// end, they form [cols / 32][16][16][2], padded with rows of zeros.
class AmxPackedWeights {
 public:
  static constexpr std::size_t kRows = 16;
  static constexpr std::size_t kCols = 32;

  /// Copies each bf16 weight whose columns are a multiple of a tile's.
  explicit AmxPackedWeights(std::span<const Weight> weights);

  /// The copy of a weight, or null if it has none.
  [[nodiscard]] const bf16* find(const Weight& weight) const;
  /// All copies, one after another.
  [[nodiscard]] std::span<const bf16> memory() const { return memory_.span(); }

 private:
  std::unordered_map<const void*, std::size_t> begins_;  // keyed by the original weight's data
  Buffer<bf16> memory_;
};

}  // namespace winnow::ops
