// The warps of the skinny GEMM kernel that multiply. Two teams share the chunks of columns, and the
// warps of a team share a chunk's steps.
#pragma once

#include <type_traits>

#include "ops/cuda/linear/skinny_gemm_float.cuh"
#include "ops/cuda/linear/skinny_gemm_integer.cuh"

namespace winnow::ops::cuda {

template <class Format, int kMostRows, class Program>
class Product {
 public:
  using Chunk = SkinnyChunk<Format>;
  using Shared = SkinnyShared<kMostRows>;

  __device__ Product(const Program& program, const Shared& shared, const SkinnyRings& rings)
      : program_(program), shared_(in_register(shared_address(&shared))), rings_(rings) {
    weights_place_.slot = inputs_place_.slot = warp() / kTeamWarps;
  }

  /// `attention`: the kernel's attention, if any.
  template <class Attention>
  __device__ void run(Attention&& attention) {
    int block = 0;  // the block with the first tile of the layer
    for (int number = 0; number < program_.count; ++number) {
      if constexpr (kAttends) {
        attention.before(number);
      }
      // Attention needs the registers.
      const LayerShare<Format> share(program_, rings_, number, block);
      Products products(shared_address(rings_.weights), shared_address(rings_.inputs),
                        program_.rows);
      multiply_tiles(share, products);
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
  static constexpr int kTogether = kChunksTogether<Format, kMostRows>;

  __device__ void multiply_tiles(const LayerShare<Format>& share, Products& products) {
    if constexpr (kInIntegers<Format, kMostRows>) {
      if (share.apart) {
        multiply_own_tiles(share, products);
        return;
      }
    }
    for (int tile = share.first; tile < share.tiles; tile += share.step) {
      multiply_tile(share, tile, products);
    }
  }

  // A tile of both teams.
  __device__ void multiply_tile(const LayerShare<Format>& share, int tile, Products& products) {
    const bool fresh = tile == share.first || !share.resident;  // inputs arrive with this tile
    const bool last = tile + share.step >= share.tiles || !share.resident;
    products.clear();
    RingPlace input = inputs_place_;
    for (int chunk = warp() / kTeamWarps; chunk < share.chunks; chunk += kTeams) {
      wait(offsetof(Shared, full),
           {weights_place_.slot / kTogether * kTogether, weights_place_.parity});
      begin(weights_place_.slot, input, products);
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
    put(products, warp(), 1);
    sums_place_.advance(Shared::kSumSlots);
  }

  // Every other tile, alone.
  __device__ void multiply_own_tiles(const LayerShare<Format>& share, Products& products) {
    const int team = warp() / kTeamWarps;
    weights_place_.slot -= team;
    weights_place_.advance(rings_.stages, team * share.chunks);
    sums_place_.advance(Shared::kSumSlots, team);
    const int step = kTeams * share.step;
    int tile = share.first + team * share.step;
    bool landed = false;
    for (bool fresh = true; tile < share.tiles; tile += step, fresh = false) {
      landed = multiply_own_tile(share, tile, fresh, landed, products);
      weights_place_.advance(rings_.stages, kTeams * share.chunks);
      sums_place_.advance(Shared::kSumSlots, kTeams);
    }
    if (tile - share.step >= share.tiles) {
      // The last tile was this team's, not the other's.
      weights_place_.retreat(rings_.stages, share.chunks);
      sums_place_.retreat(Shared::kSumSlots, 1);
    }
    weights_place_.slot += team;
    leave_inputs(share.chunks);
  }

  // `landed`: whether its first copy has surely landed. Returns the same for the team's next tile.
  __device__ bool multiply_own_tile(const LayerShare<Format>& share, int tile, bool fresh,
                                    bool landed, Products& products) {
    static_assert(kTogether == 2);  // stages are released in pairs
    products.clear();
    RingPlace input = inputs_place_;
    RingPlace weights = weights_place_;
    for (int chunk = 0; chunk < share.chunks; chunk += kTogether) {
      if (chunk > 0 || !landed) {
        wait(offsetof(Shared, full), weights);
      }
      RingPlace inputs[kTogether];
#pragma unroll
      for (RingPlace& place : inputs) {
        place = input;
        input.advance(rings_.input_slots, kTeams);
        if (fresh) {
          begin(weights.slot, place, products);
          wait(offsetof(Shared, inputs_full), place);
          products.prepare();
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        begin(weights.slot + i, inputs[i], products);
#pragma unroll
        for (int j = 0; j < Chunk::kSteps; j += kTeamWarps) {
          products.multiply(j);
        }
      }
      __syncwarp();
      if (leads()) {
        arrive(offsetof(Shared, empty), weights);
        arrive(offsetof(Shared, empty), {weights.slot + 1, weights.parity});
      }
      weights.advance(rings_.stages, kTogether);
    }
    weights.advance(rings_.stages, share.chunks);  // skip the other team's tile
    const bool next_landed =
        tile + kTeams * share.step < share.tiles &&
        has_ended(shared_ + offsetof(Shared, full) + weights.slot * sizeof(Barrier),
                  weights.parity);
    put(products, warp() % kTeamWarps, kTeams);
    return next_landed;
  }

  // Releases inputs that have stayed for all tiles, a chunk at a time.
  __device__ void leave_inputs(int chunks) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait(offsetof(Shared, inputs_full), inputs_place_);
      if (leads()) {
        arrive(offsetof(Shared, inputs_empty), inputs_place_);
      }
      inputs_place_.advance(rings_.input_slots, kTeams);
    }
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

  // A chunk in a stage, with its inputs.
  __device__ void begin(int stage, const RingPlace& input, Products& products) const {
    products.begin(stage * Chunk::kStageBytes, input.slot * slot_bytes(), warp() % kTeamWarps);
  }

  // Passes the tile's sums, part `part`, to the warps that finish it, who wait for kProductWarps.
  __device__ void put(const Products& products, int part, int arrivals) {
    wait(offsetof(Shared, sums_empty), {sums_place_.slot, sums_place_.parity ^ 1U});
    products.put(shared_ + offsetof(Shared, sums) +
                 (sums_place_.slot * kProductWarps + part) * Shared::kSums * sizeof(float));
    __syncwarp();
    if (leads()) {
      for (int i = 0; i < arrivals; ++i) {
        arrive(offsetof(Shared, sums_full), sums_place_);
      }
    }
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
  const SkinnyRings& rings_;
  RingPlace weights_place_;  // of this team
  RingPlace inputs_place_;
  RingPlace sums_place_;
};

}  // namespace winnow::ops::cuda
