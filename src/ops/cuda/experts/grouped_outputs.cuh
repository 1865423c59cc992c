// What the warps that multiply leave of a unit (grouped_units.cuh). A warp has kWarpProducts
// products of 16 weight rows with all tokens of a group: lane 4 g + c has rows g and g + 8 and, of
// each eight tokens, tokens 2 c and 2 c + 1. A class says which weight rows these are, and stores
// what becomes of the sums.
#pragma once

#include "ops/cuda/experts/grouped_units.cuh"
#include "ops/cuda/experts/packed_columns.h"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/cuda/hopper_tile.cuh"
#include "ops/cuda/linear/packed_rows.cuh"

namespace winnow::ops::cuda {

inline constexpr int kProductWarps = 8;
inline constexpr int kWarpProducts = kUnitTiles / kProductWarps;
static_assert(kWarpProducts == 2);

/// The place of a weight row's tile in the unit, and the row in the tile.
struct UnitRow {
  int place;
  int row;
};

/// The sums of a lane's products, and what they need at the end.
struct UnitSums {
  float sums[kWarpProducts][kGroupTokens / 2];
  float scales[kWarpProducts][2];  // of the upper and the lower row
  float biases[kWarpProducts][2];

  /// Sets scales and biases of the lane's rows in a unit, which `outputs` knows. The unit of a
  /// format's sums, a power of two, becomes part of the scale.
  template <class Format, class Outputs>
  __device__ void load_ends(const ExpertsMatrix& matrix, const UnitWalk<Outputs::kGated>& walk,
                            const Outputs& outputs) {
    // Operands with scales of groups are already in their own unit.
    constexpr float kUnit = Format::kGroupScales ? 1.0F : Format::kUnit;
#pragma unroll
    for (int product = 0; product < kWarpProducts; ++product) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const UnitRow own = outputs.row(product, half);
        if (walk.has_tile(own.place)) {
          const int output =
              walk.expert() * matrix.outputs + walk.tile(own.place) * kTileRows + own.row;
          scales[product][half] = kUnit * scale_of<Format>(matrix, output);
          biases[product][half] = bias_of(matrix, output);
        }
      }
    }
  }
};

/// The lane's outputs of its upper (half 0) or lower row, for tokens 8 eight + 2 c and the next,
/// as finish_output() computes them.
template <class Format, bool kWeighted, bool kGated>
__device__ __nv_bfloat162 outputs_of(const ExpertsCall& call, const UnitWalk<kGated>& walk,
                                     const UnitSums& unit, int product, int half, int eight) {
  float outputs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float& output = outputs[i];
    output = __fmul_rn(unit.sums[product][4 * eight + 2 * half + i], unit.scales[product][half]);
    if constexpr (kWeighted) {
      const int token = 8 * eight + static_cast<int>(threadIdx.x) % 4 * 2 + i;
      // Empty rows of a group, which nobody reads, have no route: they take the last token's.
      output *= weight_of(call, min(walk.first_place() + token, walk.end_place() - 1));
    }
    output += unit.biases[product][half];
  }
  return __floats2bfloat162_rn(outputs[0], outputs[1]);
}

/// Gated units that are rounded to bf16 at once, so that fast exponentials and divisions suffice.
/// Nothing overlaps with them.
struct FastSilu {
  __device__ float operator()(float gate, float up) const {
    return __fdividef(gate, 1.0F + __expf(-gate)) * up;
  }
};
/// Of ClampedUnit.
struct FastClamped {
  float limit;
  __device__ float operator()(float gate, float up) const {
    const float g = gate > limit ? limit : gate;  // keeps a NaN
    const float u = fabsf(up) > limit ? copysignf(limit, up) : up;
    return __fdividef(g, 1.0F + __expf(-ClampedUnit::kSharpness * g)) * (u + 1.0F);
  }
};

/// Outputs, in the rows of their places. They go through shared memory, so that a lane stores eight
/// outputs of a token.
template <class Format>
class StoredOutputs {
 public:
  static constexpr bool kGated = false;
  static constexpr int kTokens = 32;  // at a time
  static constexpr int kOutputs = kWarpProducts * kTileRows;
  static constexpr int kRowBytes = 2 * kOutputs + 16;  // eight rows share no bank
  static constexpr int kSharedBytes = kProductWarps * kTokens * kRowBytes;

  __device__ explicit StoredOutputs(std::byte* memory)
      : warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rows_(memory + warp_ * kTokens * kRowBytes) {}

  [[nodiscard]] __device__ UnitRow row(int product, int half) const {
    return {kWarpProducts * warp_ + product, lane_ / 4 + 8 * half};
  }

  template <bool kWeighted>
  __device__ void store(const ExpertsCall& call, const UnitWalk<kGated>& walk,
                        const UnitSums& unit) const {
    const int eight = lane_ % 4;  // of the warp's outputs
    const bool exists = walk.has_tile(kWarpProducts * warp_ + eight / 2);
#pragma unroll
    for (int first = 0; first < kGroupTokens; first += kTokens) {
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        transpose<kWeighted>(call, walk, unit, first / 8 + i, 8 * i);
      }
      __syncwarp();
#pragma unroll
      for (int token = lane_ / 4; token < kTokens; token += 8) {
        const int place = walk.first_place() + first + token;
        if (place < walk.end_place() && exists) {
          bf16* const to = call.out + static_cast<std::size_t>(place) * call.matrix.outputs +
                           walk.first_output() + warp_ * kOutputs + 8 * eight;
          *reinterpret_cast<uint4*>(to) =
              *reinterpret_cast<const uint4*>(rows_ + token * kRowBytes + 16 * eight);
        }
      }
      __syncwarp();
    }
  }

 private:
  // The warp's outputs for eight tokens, a row each; lane l says where row l % 8 of matrix l / 8
  // goes.
  template <bool kWeighted>
  __device__ void transpose(const ExpertsCall& call, const UnitWalk<kGated>& walk,
                            const UnitSums& unit, int eight, int to_row) const {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = bits_of(outputs_of<Format, kWeighted>(call, walk, unit, i / 2, i % 2, eight));
    }
    const std::uint32_t to =
        shared_address(rows_ + (to_row + lane_ % 8) * kRowBytes + lane_ / 8 * 16);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  int warp_;
  int lane_;
  std::byte* rows_;
};

/// Activated gates times ups, packed for the next product (packed_rows.cuh). The upper row of a
/// lane is a gate and the lower one its up. Each warpgroup has a slab, which goes through shared
/// memory kTokens at a time.
template <class Format, class Activate>
class PackedGates {
 public:
  static constexpr bool kGated = true;
  static constexpr int kTokens = 64;
  static constexpr int kWarps = kWarpgroup / 32;  // of a slab
  static constexpr int kPartBytes = kTokens * kSlabBytes;
  static constexpr int kSharedBytes = kProductWarps / kWarps * kPartBytes;
  static_assert(kProductWarps * kTileRows == kProductWarps / kWarps * kSlabColumns);

  /// `unit` is the factor of the next product's activations.
  __device__ PackedGates(std::byte* memory, const Activate& activate, float unit)
      : activate_(activate),
        unit_(unit),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        part_(memory + warp_ / kWarps * kPartBytes) {}

  [[nodiscard]] __device__ UnitRow row(int product, int half) const {
    return {warp_ + half * (kUnitTiles / 2), lane_ / 4 + 8 * product};
  }

  template <bool kWeighted>
  __device__ void store(const ExpertsCall& call, const UnitWalk<kGated>& walk,
                        const UnitSums& unit) const {
    const int warpgroup = warp_ / kWarps;
    const int padded = packed_columns(call.matrix.outputs / 2);
    const std::size_t group = static_cast<std::size_t>(walk.group()) * kGroupTokens * padded;
    const int slab = walk.first_output() / kSlabColumns + warpgroup;
    auto* const to = reinterpret_cast<uint4*>(call.routes.packed_activated + group +
                                              slab * kGroupTokens * kSlabColumns);
    const auto* const from = reinterpret_cast<const uint4*>(part_);
#pragma unroll
    for (int first = 0; first < kGroupTokens; first += kTokens) {
      sync_named(1 + warpgroup, kWarpgroup);  // the last part has been read
#pragma unroll
      for (int product = 0; product < kWarpProducts; ++product) {
#pragma unroll
        for (int eight = 0; eight < kTokens / 8; ++eight) {
          put(product, eight, activated<kWeighted>(call, walk, unit, product, first / 8 + eight));
        }
      }
      sync_named(1 + warpgroup, kWarpgroup);
#pragma unroll
      for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < kPartBytes / 16;
           i += kWarpgroup) {
        to[first * kSlabBytes / 16 + i] = from[i];
      }
    }
  }

 private:
  // The lane's gate for tokens 8 eight + 2 c and the next; zeros after the last column.
  template <bool kWeighted>
  __device__ std::uint32_t activated(const ExpertsCall& call, const UnitWalk<kGated>& walk,
                                     const UnitSums& unit, int product, int eight) const {
    const float2 gate =
        __bfloat1622float2(outputs_of<Format, kWeighted>(call, walk, unit, product, 0, eight));
    const float2 up =
        __bfloat1622float2(outputs_of<Format, kWeighted>(call, walk, unit, product, 1, eight));
    const std::uint32_t word = bits_of(
        __floats2bfloat162_rn(activate_(gate.x, up.x) * unit_, activate_(gate.y, up.y) * unit_));
    return walk.has_tile(warp_) ? word : 0;
  }

  // Transposed, lane 4 g + c has columns 2 c and 2 c + 1 of the warp's eight, of token g.
  __device__ void put(int product, int eight, std::uint32_t word) const {
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(word));
    const int eights = 2 * (warp_ % kWarps) + product;  // of the slab's columns
    const int token = lane_ / 4;
    const int piece = (eights / 4 * 4 + lane_ % 4) ^ token;
    auto* const row = reinterpret_cast<std::uint32_t*>(part_ + (8 * eight + token) * kSlabBytes);
    row[4 * piece + eights % 4] = word;
  }

  Activate activate_;
  float unit_;
  int warp_;
  int lane_;
  std::byte* part_;
};

}  // namespace winnow::ops::cuda
