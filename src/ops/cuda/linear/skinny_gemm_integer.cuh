// A warp's integer products in the skinny GEMM kernel: int4 weights with one row. A
// product [16, 32] x [32, 8] has a block of 16 weight rows on the left, and one row would use only
// one column on the right. So activations are split into two 8-bit digits, in units derived from
// the block's largest activation, and the columns are divided among the four blocks of a step:
// column 2 j holds the first digits of block j, 2 j + 1 the second digits, and zeros while another
// block is multiplied. All four blocks' sums are then separate in the same registers.
#pragma once

#include "ops/cuda/linear/skinny_gemm_block.cuh"

namespace winnow::ops::cuda {

/// Like FloatProducts, for int4 and one row.
///
/// Activations: x = (256 first + second) 2^(e - 14), digits in [-128, 127], where e is the exponent
/// of the largest magnitude of their 32 columns (one more if all bits of its mantissa are set), at
/// least -108. So activations of at least 1/128 of the largest one are exact. The others' error is
/// at most about 2^-15 of it (2^-123 below 2^-108), while bf16 itself may have lost 2^-8 of it. An
/// activation that is not finite, or is the largest bf16 number, makes the sum NaN.
class IntegerProducts {
 public:
  static constexpr int kBatches = 1;
  static constexpr int kStepsAtOnce = kMostStepsAtOnce;

  __device__ IntegerProducts(std::uint32_t weights, std::uint32_t inputs, int /*rows*/)
      : codes_(in_register(weights + 16 * lane())),
        scales_(codes_ - 16 * lane() + kTileRows * kStepBytes + group() * 8 + block() * 2),
        inputs_(in_register(inputs)),
        digits_(inputs_ + group() / 2 * 64 + block() * 16 + group() % 2 * 8),
        input_scales_(inputs_ + kScalesAt + block() * 2),
        upper_(in_register(0xF0F0F0F0U)) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      own_[j] = in_register(group() / 2 == j ? 0xFFFFFFFFU : 0U);
    }
  }

  /// Starts a chunk, like FloatProducts::begin().
  __device__ void begin(std::uint32_t stage, std::uint32_t slot, int first) {
    stage_ = in_register(stage + first * kTileStepBytes<Int4Weight>);
    slot_ = in_register(slot + first * kInputStep);
    slot_scales_ = in_register(slot + first * kBlocks * 2);
  }

  /// Converts activations to digits in place, 16 bytes a lane: the first digits of the columns
  /// whose codes are in the lower nibbles of their bytes, those of the others, then the second
  /// digits. The scales of the chunk's blocks, bf16, are stored after its inputs.
  __device__ void prepare() const {
    const std::uint32_t step = lane() / 16 * kTeamWarps;
    const std::uint32_t piece = inputs_ + slot_ + step * kInputStep + lane() % 16 * 16;
    std::uint32_t x[4];
    load_shared(x, piece);
    std::uint32_t largest = __vmaxu2(__vmaxu2(x[0] & kMagnitudes, x[1] & kMagnitudes),
                                     __vmaxu2(x[2] & kMagnitudes, x[3] & kMagnitudes));
    largest = max(largest >> 16, largest & 0xFFFFU);
    largest = max(largest, __shfl_xor_sync(kAll, largest, 1));
    largest = max(largest, __shfl_xor_sync(kAll, largest, 2));
    const std::uint32_t exponent = max((largest + 1) >> 7, kLeastExponent);
    const float unit = __uint_as_float((268 - exponent) << 23);
    std::uint32_t y[8];  // the number's lower 16 bits, plus 128
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float value = __uint_as_float(i % 2 == 0 ? x[i / 2] << 16 : x[i / 2] & 0xFFFF0000U);
      y[i] = __float_as_uint(fmaf(value, unit, kInteger + 128.0F));
    }
    const uint2 lower = digits(y[0], y[4], y[1], y[5]);
    const uint2 upper = digits(y[2], y[6], y[3], y[7]);
    store_shared(piece, make_uint4(lower.x, upper.x, lower.y, upper.y));
    if (lane() % 4 == 0) {
      const std::uint32_t scale = exponent < 255 ? (exponent - kScaleShift) << 7 : 0x7FC0U;
      store_shared(inputs_ + slot_scales_ + kScalesAt + (step * kBlocks + lane() % 16 / 4) * 2,
                   static_cast<std::uint16_t>(scale));
    }
    __syncwarp();
  }

  __device__ void clear() {
    sums_[0] = sums_[1] = 0.0F;
  }

  __device__ void multiply(int i) {
    const std::uint32_t weights = stage_ + i * kTileStepBytes<Int4Weight>;
    std::uint32_t words[2][4];
    load_shared(words[0], codes_ + weights);
    load_shared(words[1], codes_ + weights + 8 * kStepBytes);
    std::uint32_t x[2];
    load_shared(x, digits_ + slot_ + i * kInputStep);
    const float scale = load_bf16(input_scales_ + slot_scales_ + i * kBlocks * 2);
    const float of_rows[2] = {load_bf16(scales_ + weights),
                              load_bf16(scales_ + weights + 8 * kBlocks * 2)};
    std::int32_t products[4] = {};
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      multiply_codes(
          products,
          {lower(words[0][j]), lower(words[1][j]), upper(words[0][j]), upper(words[1][j])},
          x[0] & own_[j], x[1] & own_[j]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::int32_t sum = products[2 * row] * 256 + products[2 * row + 1];
      sums_[row] = fmaf(static_cast<float>(sum), scale * of_rows[row], sums_[row]);
    }
  }

  /// Stores the sums of the four blocks: [16 rows][4].
  __device__ void put(std::uint32_t to) const {
    store_shared(to + lane() * sizeof(float), sums_[0]);
    store_shared(to + (32 + lane()) * sizeof(float), sums_[1]);
  }

 private:
  using Chunk = SkinnyChunk<Int4Weight>;
  static constexpr int kBlocks = Int4Weight::kBlocks;
  static constexpr int kInputStep = 64 * kBlocks;
  static constexpr int kScalesAt = 2 * Chunk::kColumns;
  static_assert(Chunk::kSteps * kBlocks * 2 <= Chunk::kInputPitch - kScalesAt);
  static_assert(Chunk::kSteps == 2 * kTeamWarps);  // a lane prepares one piece of a chunk

  static constexpr unsigned kAll = 0xFFFFFFFFU;
  static constexpr std::uint32_t kMagnitudes = 0x7FFF7FFFU;
  static constexpr float kInteger = 0x1.8p23F;  // its lower bits count ones
  // Codes are 16 times their value, digits 2^14 over 2^e.
  static constexpr std::uint32_t kScaleShift = 18;
  static constexpr std::uint32_t kLeastExponent = kScaleShift + 1;

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ int group() {
    return lane() / 4;
  }
  // The block that the lane scales.
  static __device__ int block() {
    return lane() % 4;
  }

  // First and second digits of four numbers.
  static __device__ uint2 digits(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                 std::uint32_t d) {
    const std::uint32_t ab = __byte_perm(a, b, 0x5410);
    const std::uint32_t cd = __byte_perm(c, d, 0x5410);
    return {__byte_perm(ab, cd, 0x7531), __byte_perm(ab, cd, 0x6420) ^ 0x80808080U};
  }

  // Four codes of a word, stored with an offset of 8, as 16 times their signed values.
  [[nodiscard]] __device__ std::uint32_t upper(std::uint32_t word) const {
    std::uint32_t codes;  // (word & mask) ^ signs in one instruction, which takes one immediate
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(codes) : "r"(word), "r"(upper_), "r"(0x80808080U));
    return codes;
  }
  [[nodiscard]] __device__ std::uint32_t lower(std::uint32_t word) const {
    return upper(word << 4);
  }

  static __device__ void multiply_codes(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                                        std::uint32_t b0, std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }

  static __device__ float load_bf16(std::uint32_t from) {
    std::uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(from));
    return __uint_as_float(std::uint32_t{bits} << 16);
  }

  std::uint32_t codes_;
  std::uint32_t scales_;
  std::uint32_t inputs_;
  std::uint32_t digits_;
  std::uint32_t input_scales_;
  std::uint32_t upper_;         // mask of each byte's upper nibble
  std::uint32_t own_[kBlocks];  // masks: all bits in its own block, none in others
  std::uint32_t stage_;
  std::uint32_t slot_;
  std::uint32_t slot_scales_;
  float sums_[2];
};

}  // namespace winnow::ops::cuda
