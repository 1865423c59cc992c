// The warps of linear_rows that multiply. Lane 4 g + c, g < 8 and c < 4, of the products
// [16, 16] x [16, 8]: weight rows g and g + 8 on the left, batch row g on the right, and of each
// block of 32 columns, which two products take, columns 8 c to 8 c + 7 of both: the columns of a
// product may come in any order, so what lies together in memory is the operand. Columns are split
// between the warps: chunks between two teams, their steps within a team.
#pragma once

#include "ops/cuda/linear_rows_block.cuh"

namespace winnow::ops::cuda {

template <class Format, int kMostRows, class Program>
class Product {
 public:
  using Chunk = RowsChunk<Format>;
  using Shared = RowsShared<kMostRows>;

  __device__ Product(const Program& program, const Shared& shared, const RowsRings& rings)
      : program_(program),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        stages_(rings.stages),
        input_slots_(rings.input_slots),
        slot_bytes_(program.rows * Chunk::kInputPitch),
        shared_(in_register(shared_address(&shared))),
        codes_(in_register(shared_address(rings.weights) + 16 * lane_)),
        scales_(codes_ - 16 * lane_ + kTileRows * kStepBytes + lane_ / 4 * Format::kBlocks * 2) {
    const std::uint32_t inputs = shared_address(rings.inputs);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      // Rows that there are none of repeat the last one; nobody reads what becomes of them.
      const int row = min(batch * 8 + lane_ / 4, program.rows - 1);
      inputs_[batch] = in_register(inputs + row * Chunk::kInputPitch + lane_ % 4 * 16);
    }
    weights_place_.slot = inputs_place_.slot = warp_ / kTeamWarps;
  }

  /// `attention`: what the kernel has of it, if any.
  template <class Attention>
  __device__ void run(Attention&& attention) {
    LayerShare<Format> share(program_, input_slots_);
    do {
      if constexpr (kAttends) {
        attention.before(share.number);
      }
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        multiply_tile(share, tile);
      }
      if constexpr (kAttends) {
        attention.after(share.number);
      }
    } while (share.next(program_, input_slots_));
  }

 private:
  static constexpr bool kAttends = Program::kAttends;
  static constexpr int kBatches = RowsCount<kMostRows>::kBatches;
  static constexpr int kSums = kMostRows == 1 ? 1 : 2;  // of a weight row that a lane needs

  // Of the products of even and of odd half blocks.
  using Sums = float[2][kBatches][4];

  __device__ void multiply_tile(const LayerShare<Format>& share, int tile) {
    const bool fresh = tile == share.first || !share.resident;  // inputs come for this tile
    const bool last = tile + share.step >= share.tiles || !share.resident;
    Sums sums = {};
    RingPlace input = inputs_place_;
    for (int chunk = warp_ / kTeamWarps; chunk < share.chunks; chunk += kTeams) {
      wait(offsetof(Shared, full), weights_place_);
      if (fresh) {
        wait(offsetof(Shared, inputs_full), input);
      }
      multiply_chunk(weights_place_.slot, input.slot, share.steps(chunk), sums);
      __syncwarp();
      if (lane_ == 0) {
        arrive(offsetof(Shared, empty), weights_place_);
        if (last) {
          arrive(offsetof(Shared, inputs_empty), input);
        }
      }
      weights_place_.advance(stages_, kTeams);
      input.advance(input_slots_, kTeams);
    }
    if (last) {
      inputs_place_ = input;
    }
    put(sums);
  }

  __device__ void multiply_chunk(int stage, int slot, int steps, Sums& sums) const {
    const int first = warp_ % kTeamWarps;
    const std::uint32_t weights = stage * Chunk::kStageBytes + first * kTileStepBytes<Format>;
    const std::uint32_t inputs = slot * slot_bytes_ + first * kInputStep;
    if (steps == Chunk::kSteps) {
#pragma unroll
      for (int i = 0; i < Chunk::kSteps; i += kTeamWarps) {
        multiply_step(weights + i * kTileStepBytes<Format>, inputs + i * kInputStep, sums);
      }
    } else {
#pragma unroll 1
      for (int i = 0; first + i < steps; i += kTeamWarps) {
        multiply_step(weights + i * kTileStepBytes<Format>, inputs + i * kInputStep, sums);
      }
    }
  }

  static constexpr int kInputStep = 64 * Format::kBlocks;  // bytes of a row

  __device__ void multiply_step(std::uint32_t weights, std::uint32_t inputs, Sums& sums) const {
    std::uint32_t words[2][4];
    load_shared(words[0], codes_ + weights);
    load_shared(words[1], codes_ + weights + 8 * kStepBytes);
    float scales[2][Format::kBlocks];
    if constexpr (Format::kGroupScales) {
      load_scales(scales[0], scales_ + weights);
      load_scales(scales[1], scales_ + weights + 8 * Format::kBlocks * 2);
    }
#pragma unroll
    for (int j = 0; j < Format::kBlocks; ++j) {
      std::uint32_t weights[2][4];
      Format::pairs(words[0], j, weights[0]);
      Format::pairs(words[1], j, weights[1]);
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
        std::uint32_t x[4];
        load_shared(x, inputs_[batch] + inputs + j * 64);
        float products[4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float(&target)[4] = Format::kGroupScales ? products : sums[half][batch];
          const std::uint32_t left[4] = {weights[0][2 * half], weights[1][2 * half],
                                         weights[0][2 * half + 1], weights[1][2 * half + 1]};
          multiply_half(half, target, left, x[2 * half], x[2 * half + 1]);
        }
        if constexpr (Format::kGroupScales) {
#pragma unroll
          for (int row = 0; row < 2; ++row) {
#pragma unroll
            for (int i = 0; i < kSums; ++i) {
              sums[j % 2][batch][2 * row + i] += scales[row][j] * products[2 * row + i];
            }
          }
        }
      }
    }
  }

  // 16 columns, pairs 2 half and 2 half + 1 of each lane.
  static __device__ void multiply_half(int half, float (&target)[4], const std::uint32_t (&left)[4],
                                       std::uint32_t x0, std::uint32_t x1) {
    const int i = 2 * half;
    if constexpr (!RowsCount<kMostRows>::kPrepared) {
      x0 = in_unit<Format>(x0, i);
      x1 = in_unit<Format>(x1, i + 1);
    }
    if constexpr (Format::lowered(0) != 0) {
      multiply<__nv_bfloat162>(
          target,
          {Format::lowered(i), Format::lowered(i), Format::lowered(i + 1), Format::lowered(i + 1)},
          x0, x1);
    }
    multiply<__nv_bfloat162>(target, left, x0, x1);
  }

  // The tile's sums to the warps that finish it.
  __device__ void put(const Sums& sums) {
    wait(offsetof(Shared, sums_empty), {sums_place_.slot, sums_place_.parity ^ 1U});
    const std::uint32_t to =
        shared_ + offsetof(Shared, sums) +
        ((sums_place_.slot * kProductWarps + warp_) * Shared::kSums + 4 * lane_) * sizeof(float);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      const float(&x)[4] = sums[0][batch];
      const float(&y)[4] = sums[1][batch];
      store_shared(to + batch * 512, {x[0] + y[0], x[1] + y[1], x[2] + y[2], x[3] + y[3]});
    }
    __syncwarp();
    if (lane_ == 0) {
      arrive(offsetof(Shared, sums_full), sums_place_);
    }
    sums_place_.advance(kSumSlots);
  }

  static __device__ void load_scales(float (&scales)[Format::kBlocks], std::uint32_t from) {
    std::uint32_t words[Format::kBlocks / 2];
    load_shared(words, from);
#pragma unroll
    for (int i = 0; i < Format::kBlocks; ++i) {
      scales[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000U);
    }
  }

  __device__ void wait(std::uint32_t ring, const RingPlace& place) const {
    wait_at(shared_ + ring + place.slot * sizeof(Barrier), place.parity);
  }
  __device__ void arrive(std::uint32_t ring, const RingPlace& place) const {
    arrive_at(shared_ + ring + place.slot * sizeof(Barrier));
  }

  const Program& program_;
  int warp_;
  int lane_;
  int stages_;
  int input_slots_;
  int slot_bytes_;
  // Addresses in shared memory, of what this lane takes of the first stage and slot.
  std::uint32_t shared_;
  std::uint32_t codes_;
  std::uint32_t scales_;
  std::uint32_t inputs_[kBatches];
  RingPlace weights_place_;  // of this team
  RingPlace inputs_place_;
  RingPlace sums_place_;
};

}  // namespace winnow::ops::cuda
