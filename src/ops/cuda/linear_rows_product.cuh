// The warps of linear_rows that multiply. Columns are split between them: chunks between two teams,
// their steps within a team.
#pragma once

#include <type_traits>

#include "ops/cuda/linear_rows_float.cuh"
#include "ops/cuda/linear_rows_integer.cuh"

namespace winnow::ops::cuda {

template <class Format, int kMostRows, class Program>
class Product {
 public:
  using Chunk = RowsChunk<Format>;
  using Shared = RowsShared<kMostRows>;

  __device__ Product(const Program& program, const Shared& shared, const RowsRings& rings)
      : program_(program), shared_(in_register(shared_address(&shared))), rings_(rings) {
    weights_place_.slot = inputs_place_.slot = warp() / kTeamWarps;
  }

  /// `attention`: what the kernel has of it, if any.
  template <class Attention>
  __device__ void run(Attention&& attention) {
    int block = 0;  // whose tile is the first one of the layer
    for (int number = 0; number < program_.count; ++number) {
      if constexpr (kAttends) {
        attention.before(number);
      }
      // Attention needs the registers.
      const LayerShare<Format> share(program_, rings_.input_slots, number, block);
      Products products(shared_address(rings_.weights), shared_address(rings_.inputs),
                        program_.rows);
      for (int tile = share.first; tile < share.tiles; tile += share.step) {
        multiply_tile(share, tile, products);
      }
      block = share.next_block();
      if constexpr (kAttends) {
        attention.after(number);
      }
    }
  }

 private:
  static constexpr bool kAttends = Program::kAttends;
  using Products = std::conditional_t<kInIntegers<Format, kMostRows>, IntegerProducts,
                                      FloatProducts<Format, kMostRows>>;

  __device__ void multiply_tile(const LayerShare<Format>& share, int tile, Products& products) {
    const bool fresh = tile == share.first || !share.resident;  // inputs come for this tile
    const bool last = tile + share.step >= share.tiles || !share.resident;
    products.clear();
    RingPlace input = inputs_place_;
    for (int chunk = warp() / kTeamWarps; chunk < share.chunks; chunk += kTeams) {
      constexpr int kTogether = kChunksTogether<Format, kMostRows>;
      wait(offsetof(Shared, full),
           {weights_place_.slot / kTogether * kTogether, weights_place_.parity});
      products.begin(weights_place_.slot * Chunk::kStageBytes, input.slot * slot_bytes(),
                     warp() % kTeamWarps);
      if (fresh) {
        wait(offsetof(Shared, inputs_full), input);
        products.prepare();
      }
      multiply_chunk(share.steps(chunk), products);
      __syncwarp();
      if (leads()) {
        arrive(offsetof(Shared, empty), weights_place_);
        if (last) {
          arrive(offsetof(Shared, inputs_empty), input);
        }
      }
      weights_place_.advance(rings_.stages, kTeams);
      input.advance(rings_.input_slots, kTeams);
    }
    if (last) {
      inputs_place_ = input;
    }
    put(products);
  }

  __device__ void multiply_chunk(int steps, Products& products) {
    if (steps == Chunk::kSteps) {
#pragma unroll(Products::kStepsAtOnce)
      for (int i = 0; i < Chunk::kSteps; i += kTeamWarps) {
        products.multiply(i);
      }
    } else {
#pragma unroll 1
      for (int i = 0; warp() % kTeamWarps + i < steps; i += kTeamWarps) {
        products.multiply(i);
      }
    }
  }

  // The tile's sums to the warps that finish it.
  __device__ void put(const Products& products) {
    wait(offsetof(Shared, sums_empty), {sums_place_.slot, sums_place_.parity ^ 1U});
    products.put(shared_ + offsetof(Shared, sums) +
                 (sums_place_.slot * kProductWarps + warp()) * Shared::kSums * sizeof(float));
    __syncwarp();
    if (leads()) {
      arrive(offsetof(Shared, sums_full), sums_place_);
    }
    sums_place_.advance(kSumSlots);
  }

  [[nodiscard]] __device__ std::uint32_t slot_bytes() const {
    return (kMostRows == 1 ? 1 : program_.rows) * Chunk::kInputPitch;
  }
  static __device__ int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  static __device__ bool leads() {
    return threadIdx.x % 32 == 0;
  }

  __device__ void wait(std::uint32_t ring, const RingPlace& place) const {
    wait_at(shared_ + ring + place.slot * sizeof(Barrier), place.parity);
  }
  __device__ void arrive(std::uint32_t ring, const RingPlace& place) const {
    arrive_at(shared_ + ring + place.slot * sizeof(Barrier));
  }

  const Program& program_;

  std::uint32_t shared_;
  const RowsRings& rings_;
  RingPlace weights_place_;  // of this team
  RingPlace inputs_place_;
  RingPlace sums_place_;
};

}  // namespace winnow::ops::cuda
