// Copies of weights in the order in which a CPU's tiles take them.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>

#include "base/dtype.h"
#include "base/tensor.h"
#include "ops/weight.h"

namespace winnow::ops {

/// Whether products in bf16 are of such copies, if there are any: the CPU has tiles, and this
/// program may use them.
bool cpu_takes_amx_packed_weights();

/// The second operand of a product of tiles (AMX) is pairs of columns: [pair][row][2], 16 rows and
/// 32 columns in 1,024 bytes. A weight whose copy has this order is read as one stream, its
/// inputs are rows as they lie, and so are its results (cpu/gemm_amx_packed.h). Two tiles of rows
/// that are multiplied together follow each other: [rows / 32][cols / 32][2][16][16][2], or, of the
/// last 16 rows or fewer, [cols / 32][16][16][2], rows of zeros behind the last one.
class AmxPackedWeights {
 public:
  static constexpr std::size_t kRows = 16;
  static constexpr std::size_t kCols = 32;

  /// Copies the weights in bf16 whose columns come in whole tiles.
  explicit AmxPackedWeights(std::span<const Weight> weights);

  /// The copy of a weight, or null if it has none.
  [[nodiscard]] const bf16* find(const Weight& weight) const;
  /// All copies, one after another.
  [[nodiscard]] std::span<const bf16> memory() const { return memory_.span(); }

 private:
  std::unordered_map<const void*, std::size_t> begins_;  // by the weights' own data
  Buffer<bf16> memory_;
};

}  // namespace winnow::ops
