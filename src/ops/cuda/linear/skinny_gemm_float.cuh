// A warp's bf16 products in the skinny GEMM kernel. Lane 4 g + c, g < 8 and c < 4, of the
// products [16, 16] x [16, 8] holds weight rows g and g + 8 on the left, batch row g on the right,
// and columns 8 c to 8 c + 7 of both, of each block of 32 columns, which two products process. A
// product's columns may come in any order, so contiguous memory can serve as the operand.
#pragma once

#include "ops/cuda/linear/skinny_gemm_block.cuh"

namespace winnow::ops::cuda {

/// Sums of a tile, over the steps assigned to a warp. Addresses are in shared memory.
template <class Format, int kMostRows>
class FloatProducts {
 public:
  static constexpr int kBatches = SkinnyRows<kMostRows>::kBatches;
  /// As many as registers have room for.
  static constexpr int kStepsAtOnce =
      Format::kFormat == DeviceWeightFormat::int4 && kBatches > 1 ? 1 : kMostStepsAtOnce;

  /// `weights`: of the first stage; `inputs`: of the first slot.
  __device__ FloatProducts(std::uint32_t weights, std::uint32_t inputs, int rows)
      : codes_(in_register(weights + 16 * lane())),
        scales_(weights + kTileRows * kStepBytes + lane() / 4 * Format::kBlocks * 2) {
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      // Missing rows repeat the last one; their results are not read.
      const int row = min(batch * 8 + lane() / 4, rows - 1);
      inputs_[batch] =
          in_register(inputs + row * SkinnyChunk<Format>::kInputPitch + lane() % 4 * 16);
    }
  }

  /// Starts a chunk in `stage` with its inputs in `slot` (offsets from the first ones). The warp
  /// processes the steps `first`, `first` + kTeamWarps, ...
  __device__ void begin(std::uint32_t stage, std::uint32_t slot, int first) {
    stage_ = in_register(stage + first * kTileStepBytes<Format>);
    slot_ = in_register(slot + first * kInputStep);
  }
  /// Called when the chunk's inputs have arrived.
  __device__ void prepare() const {}

  __device__ void clear() {
#pragma unroll
    for (auto& half : sums_) {
#pragma unroll
      for (float(&sums)[4] : half) {
        sums[0] = sums[1] = sums[2] = sums[3] = 0.0F;
      }
    }
  }

  /// Adds step `first` + i.
  __device__ void multiply(int i) {
    const std::uint32_t weights = stage_ + i * kTileStepBytes<Format>;
    const std::uint32_t inputs = slot_ + i * kInputStep;
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
          float(&target)[4] = Format::kGroupScales ? products : sums_[half][batch];
          const std::uint32_t left[4] = {weights[0][2 * half], weights[1][2 * half],
                                         weights[0][2 * half + 1], weights[1][2 * half + 1]};
          multiply_half(half, target, left, x[2 * half], x[2 * half + 1]);
        }
        if constexpr (Format::kGroupScales) {
#pragma unroll
          for (int row = 0; row < 2; ++row) {
#pragma unroll
            for (int i = 0; i < kSums; ++i) {
              sums_[j % 2][batch][2 * row + i] += scales[row][j] * products[2 * row + i];
            }
          }
        }
      }
    }
  }

  /// Stores the sums, [batches][lanes][4]; with one row [16].
  __device__ void put(std::uint32_t to) const {
    if constexpr (kMostRows == 1) {
      if (lane() % 4 == 0) {
        store_shared(to + lane(), sums_[0][0][0] + sums_[1][0][0]);
        store_shared(to + 32 + lane(), sums_[0][0][2] + sums_[1][0][2]);
      }
    } else {
#pragma unroll
      for (int batch = 0; batch < kBatches; ++batch) {
        const float(&x)[4] = sums_[0][batch];
        const float(&y)[4] = sums_[1][batch];
        store_shared(to + (32 * batch + lane()) * sizeof(float4),
                     float4{x[0] + y[0], x[1] + y[1], x[2] + y[2], x[3] + y[3]});
      }
    }
  }

 private:
  static constexpr int kInputStep = 64 * Format::kBlocks;
  static constexpr int kSums = kMostRows == 1 ? 1 : 2;  // a lane's sums per weight row

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }

  // 16 columns, pairs 2 half and 2 half + 1 of each lane.
  static __device__ void multiply_half(int half, float (&target)[4], const std::uint32_t (&left)[4],
                                       std::uint32_t x0, std::uint32_t x1) {
    const int i = 2 * half;
    if constexpr (!kPrepared<Format, kMostRows>) {
      x0 = in_unit<Format>(x0, i);
      x1 = in_unit<Format>(x1, i + 1);
    }
    if constexpr (Format::lowered(0) != 0) {
      cuda::multiply<__nv_bfloat162>(
          target,
          {Format::lowered(i), Format::lowered(i), Format::lowered(i + 1), Format::lowered(i + 1)},
          x0, x1);
    }
    cuda::multiply<__nv_bfloat162>(target, left, x0, x1);
  }

  static __device__ void load_scales(float (&scales)[Format::kBlocks], std::uint32_t from) {
    std::uint32_t words[Format::kBlocks / 2];
    load_shared(words, from);
#pragma unroll
    for (int i = 0; i < Format::kBlocks; ++i) {
      scales[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000U);
    }
  }

  std::uint32_t codes_;
  std::uint32_t scales_;
  std::uint32_t inputs_[kBatches];
  std::uint32_t stage_;
  std::uint32_t slot_;
  float sums_[2][kBatches][4];  // for products of even and of odd half blocks
};

}  // namespace winnow::ops::cuda
