#include "ops/amx_packed_weights.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/linear/gemm_amx.h"

namespace winnow::ops {
namespace {

constexpr std::size_t kRows = AmxPackedWeights::kRows;
constexpr std::size_t kCols = AmxPackedWeights::kCols;
constexpr std::size_t kTile = kRows * kCols;

std::size_t tiles_of_rows(const Weight& weight) {
  return (static_cast<std::size_t>(weight.rows) + kRows - 1) / kRows;
}

std::size_t steps(const Weight& weight) {
  return static_cast<std::size_t>(weight.cols) / kCols;
}

/// Copies rows [first, first + kRows) of columns [k, k + kCols), as many as exist.
void copy_tile(const Weight& weight, std::size_t first, std::size_t k, bf16* to) {
  const auto rows = static_cast<std::size_t>(weight.rows);
  const auto cols = static_cast<std::size_t>(weight.cols);
  std::fill_n(to, kTile, bf16{});
  for (std::size_t i = 0; i < std::min(kRows, rows - first); ++i) {
    const bf16* row = static_cast<const bf16*>(weight.data) + (first + i) * cols + k;
    for (std::size_t j = 0; j < kCols; ++j) {
      to[(j / 2 * kRows + i) * 2 + j % 2] = row[j];
    }
  }
}

void copy(const Weight& weight, bf16* to) {
  const std::size_t tiles = tiles_of_rows(weight);
  for (std::size_t tile = 0; tile < tiles; tile += 2) {
    for (std::size_t step = 0; step < steps(weight); ++step) {
      for (std::size_t i = tile; i < std::min(tile + 2, tiles); ++i, to += kTile) {
        copy_tile(weight, i * kRows, step * kCols, to);
      }
    }
  }
}

}  // namespace

bool cpu_takes_amx_packed_weights() {
  return cpu::has_bf16_tiles();
}

AmxPackedWeights::AmxPackedWeights(std::span<const Weight> weights) {
  std::vector<const Weight*> chosen;
  std::size_t size = 0;
  for (const Weight& weight : weights) {
    const bool whole = static_cast<std::size_t>(weight.cols) % kCols == 0;
    if (weight.format == WeightFormat::bf16 && whole && !begins_.contains(weight.data)) {
      begins_.emplace(weight.data, size);
      chosen.push_back(&weight);
      size += tiles_of_rows(weight) * steps(weight) * kTile;
    }
  }
  memory_ = Buffer<bf16>(size);
  for (const Weight* weight : chosen) {
    copy(*weight, &memory_[begins_.at(weight->data)]);
  }
}

const bf16* AmxPackedWeights::find(const Weight& weight) const {
  const auto found = begins_.find(weight.data);
  return found == begins_.end() ? nullptr : memory_.data() + found->second;
}

}  // namespace winnow::ops
