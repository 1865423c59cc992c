// The kernel of 8-bit inputs, for the instructions of the including file. Its class `Lanes` has
// vectors with a 32-bit lane for each weight row of a block.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ops/cpu/linear/x86/byte_kernel.h"

namespace winnow::ops::cpu {
namespace {

inline constexpr std::size_t kGroup = QuantizedWeight::kGroup;
inline constexpr std::size_t kFours = kGroup / 4;

/// The integers of a group plus weight_offset(), each in a byte.
struct Int8Group {
  static constexpr std::size_t kBytes = kGroup;
  static __m256i load(const std::uint8_t* from) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  }
};

struct Int4Group {
  static constexpr std::size_t kBytes = kGroup / 2;
  static __m256i load(const std::uint8_t* from) { return nibbles(from); }
};

struct Mxfp4Group {
  static constexpr std::size_t kBytes = kGroup / 2;
  static __m256i load(const std::uint8_t* from) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1.data()));
    const __m256i codes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(from));
    return _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
  }
};

template <class Group>
void pack_as(const Weight& weight, std::size_t begin, const ByteWeights& to) {
  const auto groups = static_cast<std::size_t>(weight.cols) / kGroup;
  const auto last = static_cast<std::size_t>(weight.rows) - 1;
  const std::uint8_t* codes[Lanes::kCount];
  const bf16* scales[Lanes::kCount];
  for (std::size_t r = 0; r < Lanes::kCount; ++r) {
    const std::size_t row = std::min(begin + r, last);
    codes[r] = static_cast<const std::uint8_t*>(weight.data) + row * groups * Group::kBytes;
    scales[r] = weight.scales + row * groups;
  }
  for (std::size_t g = 0; g < groups; ++g) {
    __m256i rows[Lanes::kCount];
    for (std::size_t r = 0; r < Lanes::kCount; ++r) {
      rows[r] = Group::load(codes[r] + g * Group::kBytes);
      to.scales[g * Lanes::kCount + r] = to_float(scales[r][g]);
    }
    Lanes::transpose(rows, to.codes + g * kFours * Lanes::kCount * 4);
  }
}

inline void pack(const Weight& weight, std::size_t begin, const ByteWeights& to) {
  weight.format == WeightFormat::int8   ? pack_as<Int8Group>(weight, begin, to)
  : weight.format == WeightFormat::int4 ? pack_as<Int4Group>(weight, begin, to)
                                        : pack_as<Mxfp4Group>(weight, begin, to);
}

template <std::size_t M>
void tile_of(const ByteWeights& weights, const ByteInputs& x, const float* bias,
             Matrix<float> out) {
  typename Lanes::Floats sums[M] = {};
  const std::uint8_t* codes = weights.codes;
  for (std::size_t g = 0; g < x.groups; ++g) {
    typename Lanes::Integers products[M];
#pragma GCC unroll 8
    for (std::size_t m = 0; m < M; ++m) {
      products[m] = Lanes::repeat(x.corrections[m * x.groups + g]);
    }
    const std::int8_t* inputs = x.codes + g * kGroup;
#pragma GCC unroll 8
    for (std::size_t four = 0; four < kFours; ++four, codes += Lanes::kCount * 4) {
      const typename Lanes::Integers rows = Lanes::load(codes);
#pragma GCC unroll 8
      for (std::size_t m = 0; m < M; ++m) {
        std::int32_t columns = 0;
        std::memcpy(&columns, inputs + m * x.groups * kGroup + 4 * four, sizeof(columns));
        products[m] = Lanes::add_dots(products[m], rows, columns);
      }
    }
    const typename Lanes::Floats scales = Lanes::load(weights.scales + g * Lanes::kCount);
#pragma GCC unroll 8
    for (std::size_t m = 0; m < M; ++m) {
      sums[m] = Lanes::add_scaled(sums[m], products[m], scales, x.scales[m * x.groups + g]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t m = 0; m < M; ++m) {
    alignas(64) float values[Lanes::kCount];
    Lanes::store(values, sums[m] + Lanes::load(bias));
    std::copy_n(values, out.cols, out.row(m).data());
  }
}

inline void tile(const ByteWeights& weights, const ByteInputs& x, const float* bias,
                 Matrix<float> out) {
  static constexpr auto kTiles = []<std::size_t... kM>(std::index_sequence<kM...>) {
    return std::array{&tile_of<kM + 1>...};
  }
  (std::make_index_sequence<Lanes::kInputs>());
  kTiles[x.rows - 1](weights, x, bias, out);
}

}  // namespace
}  // namespace winnow::ops::cpu
