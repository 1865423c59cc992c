// The warps of linear_rows that multiply. Lane 4 g + c, g < 8 and c < 4, of the products
// [16, 16] x [16, 8]: weight rows g and g + 8 on the left, batch row g on the right, and of each
// block of 32 columns, which two products take, columns 8 c to 8 c + 7 of both: the columns of a
// product may come in any order, so what lies together in memory is the operand. Columns are split
// between the warps: chunks between two teams, their steps within a team.
#pragma once

#include "ops/cuda/linear_rows_block.cuh"

namespace winnow::ops::cuda {

template <class Format, int kBatches>
class Product {
 public:
  using Chunk = RowsChunk<Format>;
  using Shared = RowsShared<kBatches>;

  __device__ Product(const RowsProgram& program, Shared& shared, const RowsRings& rings)
      : program_(program),
        shared_(shared),
        rings_(rings),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      // Rows that there are none of repeat the last one; nobody reads what becomes of them.
      const int row = min(batch * 8 + lane_ / 4, program.rows - 1);
      inputs_at_[batch] = row * Chunk::kInputPitch + lane_ % 4 * 16;
    }
  }

  __device__ void run() {
    LayerShare<Format> share(program_, rings_.input_slots);
    do {
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        multiply_tile(share, tile);
      }
    } while (share.next(program_, rings_.input_slots));
  }

 private:
  // Of the products of even and of odd half blocks.
  using Sums = float[2][kBatches][4];

  __device__ void multiply_tile(const LayerShare<Format>& share, int tile) {
    const bool fresh = tile == share.first || !share.resident;  // inputs come for this tile
    const bool last = tile + share.step >= share.tiles || !share.resident;
    Sums sums = {};
    RingPlace input = inputs_;
    for (int chunk = 0; chunk < share.chunks; ++chunk) {
      if (chunk % kTeams == warp_ / kTeamWarps) {
        shared_.full[weights_.slot].wait(weights_.parity);
        if (fresh) {
          shared_.inputs_full[input.slot].wait(input.parity);
        }
        multiply_chunk(rings_.weights + weights_.slot * Chunk::kStageBytes,
                       rings_.inputs + input.slot * program_.rows * Chunk::kInputPitch,
                       share.steps(chunk), sums);
        __syncwarp();
        if (lane_ == 0) {
          shared_.empty[weights_.slot].arrive();
          if (last) {
            shared_.inputs_empty[input.slot].arrive();
          }
        }
      }
      weights_.advance(rings_.stages);
      input.advance(rings_.input_slots);
    }
    if (last) {
      inputs_ = input;
    }
    put(sums);
  }

  __device__ void multiply_chunk(const std::byte* stage, const std::byte* inputs, int steps,
                                 Sums& sums) const {
    const int first = warp_ % kTeamWarps;
    if (steps == Chunk::kSteps) {
#pragma unroll
      for (int i = 0; i < Chunk::kSteps / kTeamWarps; ++i) {
        multiply_step(stage, inputs, first + i * kTeamWarps, sums);
      }
    } else {
#pragma unroll 1
      for (int step = first; step < steps; step += kTeamWarps) {
        multiply_step(stage, inputs, step, sums);
      }
    }
  }

  __device__ void multiply_step(const std::byte* stage, const std::byte* inputs, int step,
                                Sums& sums) const {
    std::uint32_t words[2][4];
    const std::byte* codes = stage + step * kTileStepBytes<Format>;
    load(words[0], codes + 16 * lane_);
    load(words[1], codes + 16 * lane_ + 8 * kStepBytes);
    float scales[2][Format::kBlocks];
    if constexpr (Format::kGroupScales) {
      const std::byte* from = codes + kTileRows * kStepBytes + lane_ / 4 * Format::kBlocks * 2;
      load_scales(scales[0], from);
      load_scales(scales[1], from + 8 * Format::kBlocks * 2);
    }
#pragma unroll
    for (int j = 0; j < Format::kBlocks; ++j) {
      std::uint32_t weights[2][4];
      Format::pairs(words[0], j, weights[0]);
      Format::pairs(words[1], j, weights[1]);
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
        std::uint32_t x[4];
        load(x, inputs + inputs_at_[batch] + (step * Format::kBlocks + j) * 64);
        float products[4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&target)[4] = Format::kGroupScales ? products : sums[half][batch];
          const std::uint32_t left[4] = {weights[0][2 * half], weights[1][2 * half],
                                         weights[0][2 * half + 1], weights[1][2 * half + 1]};
          multiply<__nv_bfloat162>(target, left, in_unit(x[2 * half]), in_unit(x[2 * half + 1]));
        }
        if constexpr (Format::kGroupScales) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[j % 2][batch][i] += scales[i / 2][j] * products[i];
          }
        }
      }
    }
  }

  // The tile's sums to the warps that finish it.
  __device__ void put(const Sums& sums) {
    shared_.sums_empty[sums_.slot].wait(sums_.parity ^ 1U);
    auto* to = reinterpret_cast<float4*>(shared_.sums[sums_.slot][warp_]) + lane_;
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      const float(&x)[4] = sums[0][batch];
      const float(&y)[4] = sums[1][batch];
      to[batch * 32] = {x[0] + y[0], x[1] + y[1], x[2] + y[2], x[3] + y[3]};
    }
    __syncwarp();
    if (lane_ == 0) {
      shared_.sums_full[sums_.slot].arrive();
    }
    sums_.advance(2);
  }

  static __device__ void load(std::uint32_t (&words)[4], const std::byte* from) {
    memcpy(words, __builtin_assume_aligned(from, 16), 16);
  }

  static __device__ void load_scales(float (&scales)[Format::kBlocks], const std::byte* from) {
    std::uint32_t words[Format::kBlocks / 2];
    memcpy(words, __builtin_assume_aligned(from, sizeof(words)), sizeof(words));
#pragma unroll
    for (int i = 0; i < Format::kBlocks; ++i) {
      scales[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000U);
    }
  }

  static __device__ std::uint32_t in_unit(std::uint32_t x) {
    if constexpr (Format::kActivationUnit == 1.0F) {
      return x;
    } else {
      return bits_of(__hmul2(pair_of(x), __float2bfloat162_rn(Format::kActivationUnit)));
    }
  }

  const RowsProgram& program_;
  Shared& shared_;
  RowsRings rings_;
  int warp_;
  int lane_;
  int inputs_at_[kBatches];
  RingPlace weights_;
  RingPlace inputs_;
  RingPlace sums_;
};

}  // namespace winnow::ops::cuda
