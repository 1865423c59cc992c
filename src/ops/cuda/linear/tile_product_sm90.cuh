// Products of weights in storage order with packed rows (packed_rows.cuh), by warpgroups: each
// of a block's kSmallBatchTiles warps reads the codes of a tile from shared memory, converts them
// to operands in registers (the left ones of wgmma) and multiplies by all rows, which are in shared
// memory as the right operand of all warps.
#pragma once

#include "ops/cuda/hopper_tile.cuh"
#include "ops/cuda/linear/packed_rows.cuh"

namespace winnow::ops::cuda {

inline constexpr int kMostStages = 8;

/// A stage of a ring in shared memory: `Columns` columns of `Rows` rows and of the weights of
/// `Tiles` tiles.
template <class Format, int Rows, int Columns = stage_columns(Format::kFormat),
          int Tiles = kSmallBatchTiles, int RingBytes = kSmallBatchRingBytes>
struct StageOf {
  static constexpr int kColumns = Columns;
  static constexpr int kSteps = kColumns / (Format::kBlocks * kBlockColumns);
  static constexpr int kTileBytes = kSteps * kTileStepBytes<Format>;
  static constexpr int kWeightBytes = Tiles * kTileBytes;
  static constexpr int kSlab = Rows * kSlabColumns * static_cast<int>(sizeof(bf16));
  static constexpr int kRowBytes = kColumns / kSlabColumns * kSlab;
  static constexpr int kFit = RingBytes / (kWeightBytes + kRowBytes);
  static constexpr int kCount = kFit < kMostStages ? kFit : kMostStages;
  static constexpr int kSharedBytes = 1024 + kCount * (kWeightBytes + kRowBytes);
};

/// The 8 columns of block j of a weight row that a lane holds, as pairs of bf16.
template <class Format>
__device__ void operands(const std::uint32_t (&words)[4], int j, std::uint32_t scale,
                         std::uint32_t (&out)[4]) {
  if constexpr (!Format::kGroupScales) {
    Format::pairs(words, j, out);
  } else {
    if constexpr (Format::kFormat == DeviceWeightFormat::int4) {
      constexpr std::uint32_t kOffset = 0x43084308U;  // 128 + 8
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t raised = select_bits(words[j] >> 4 * i, 0x000F000FU, 0x43004300U);
        out[i] = bits_of(__hsub2(pair_of(raised), pair_of(kOffset)));
      }
    } else {
      Format::pairs(words, j, out);
    }
#pragma unroll
    for (std::uint32_t& pair : out) {
      pair = bits_of(__hmul2(pair_of(pair), pair_of(scale)));
    }
  }
}

/// A lane's piece of a weight row of one step, as it is stored.
template <class Format>
class StepRow {
 public:
  /// Loads piece `lane` of four of row `row` from a tile's step in shared memory; zeros if the
  /// weight has no such step.
  __device__ void load(std::uint32_t step, int row, int lane, bool exists) {
    load_shared(words_, step + row * kStepBytes + lane * 16);
    load_scales(step + kTileRows * kStepBytes + row * Format::kBlocks * 2);
    const std::uint32_t mask = exists ? ~0U : 0U;  // a branch would serialise products
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words_[j] &= mask;
      scales_[j] &= mask;
    }
  }
  __device__ void operands(int block, std::uint32_t (&out)[4]) const {
    cuda::operands<Format>(words_, block, scales_[block], out);
  }

 private:
  // The scale of each block, twice in a word.
  __device__ void load_scales(std::uint32_t from) {
    if constexpr (Format::kGroupScales) {
      std::uint32_t words[Format::kBlocks / 2];
      load_shared(words, from);
#pragma unroll
      for (int j = 0; j < Format::kBlocks; ++j) {
        scales_[j] = __byte_perm(words[j / 2], 0, j % 2 == 0 ? 0x1010 : 0x3232);
      }
    }
  }

  std::uint32_t words_[4];
  std::uint32_t scales_[4] = {};
};

/// A lane's operands of a block of columns: of the upper and of the lower of its weight rows.
using BlockOperands = std::uint32_t[2][4];

/// Issues sums += the product of block `block` of a stage, `rows` being the descriptor of the
/// stage's rows.
template <class Stage, int Size>
__device__ void begin_block(float (&sums)[Size], const BlockOperands& left, std::uint64_t rows,
                            int block) {
  const std::uint64_t slab = rows + block / 2 * (Stage::kSlab / 16);
  const auto& [upper, lower] = left;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t pairs[4] = {upper[2 * i], lower[2 * i], upper[2 * i + 1], lower[2 * i + 1]};
    multiply_registers_by_rows(sums, pairs, slab + (block % 2 * 2 + i) * 2, __nv_bfloat162{});
  }
}

/// A lane's position in a tile: lane 4 g + c has weight rows g and g + 8 and, in the results, rows
/// 2 c and 2 c + 1 of each 8.
template <class Format, class Stage>
class TileProduct {
 public:
  __device__ TileProduct()
      : tile_(static_cast<int>(threadIdx.x) / 32),
        row_(static_cast<int>(threadIdx.x) % 32 / 4),
        lane_(static_cast<int>(threadIdx.x) % 4) {}

  [[nodiscard]] __device__ int tile() const { return tile_; }
  [[nodiscard]] __device__ int row() const { return row_; }
  [[nodiscard]] __device__ int lane() const { return lane_; }

  /// sums += the product of a stage that has `steps` steps, or all.
  template <int Size>
  __device__ void multiply(float (&sums)[Size], const std::byte* rows_of_stage,
                           const std::byte* weights_of_stage, int steps) const {
    BlockOperands left[kBlocks];
    load(left, weights_of_stage, steps);
    const std::uint64_t rows = matrix_descriptor(rows_of_stage, Stage::kSlab);
    begin_products();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      begin_block<Stage>(sums, left[block], rows, block);
    }
    commit_products();
    wait_for_products<0>(sums);
  }

 private:
  static constexpr int kBlocks = Stage::kSteps * Format::kBlocks;

  __device__ void load(BlockOperands (&left)[kBlocks], const std::byte* weights, int steps) const {
    const std::uint32_t first = shared_address(weights + tile_ * Stage::kTileBytes);
#pragma unroll
    for (int step = 0; step < Stage::kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        StepRow<Format> row;
        row.load(first + step * kTileStepBytes<Format>, row_ + 8 * half, lane_, step < steps);
#pragma unroll
        for (int j = 0; j < Format::kBlocks; ++j) {
          row.operands(j, left[step * Format::kBlocks + j][half]);
        }
      }
    }
  }

  int tile_;
  int row_;
  int lane_;
};

}  // namespace winnow::ops::cuda
