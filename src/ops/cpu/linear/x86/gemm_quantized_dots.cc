#include "ops/cpu/linear/quantized_dots.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>

#include "ops/cpu/linear/row_blocks.h"
#include "ops/cpu/linear/x86/avx512_bf16.h"
#include "ops/cpu/rows.h"
#include "ops/weight.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")
namespace winnow::ops::cpu {
namespace {

// A block is four groups: each quarter of a vector belongs to one of them. The products of a block
// add up to one vector, whose quarters are then scaled.
constexpr std::size_t kGroup = QuantizedWeight::kGroup;
constexpr std::size_t kBlockGroups = 4;
constexpr std::size_t kBlock = kBlockGroups * kGroup;
/// Vectors of bf16 in a block, and the number of a group's columns in each.
constexpr std::size_t kVectors = 4;
constexpr std::size_t kLanes = kBlock / kVectors;
constexpr std::size_t kOfGroup = kGroup / kVectors;

/// Inputs that share one unpacking of weights: as many as there are registers for sums.
constexpr std::size_t kTileInputs = 8;

/// Inputs as bf16, [blocks, rows, kBlock], the columns of a block in the order in which a weight's
/// integers are unpacked; zeros beyond the last column.
struct ArrangedInputs {
  const bf16* data;
  std::size_t rows;
};

using Words = std::uint16_t __attribute__((vector_size(64)));

/// The lower or the upper byte of the bf16 of the integers [first, first + count), repeated to fill
/// the table.
template <std::size_t N>
constexpr std::array<std::uint8_t, N> bytes_of(int first, int count, bool upper) {
  std::array<std::uint8_t, N> bytes{};
  for (std::size_t i = 0; i < N; ++i) {
    const int integer = first + static_cast<int>(i) % count;
    const auto bits = to_bf16(static_cast<float>(integer)).bits;
    bytes[i] = static_cast<std::uint8_t>(upper ? bits >> 8 : bits);
  }
  return bytes;
}

/// The same for integers in a table.
constexpr std::array<std::uint8_t, 64> bytes_of(const std::array<std::int8_t, 16>& integers,
                                                bool upper) {
  std::array<std::uint8_t, 64> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto bits = to_bf16(static_cast<float>(integers[i % integers.size()])).bits;
    bytes[i] = static_cast<std::uint8_t>(upper ? bits >> 8 : bits);
  }
  return bytes;
}

constexpr std::array<std::int8_t, 16> kInt4{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

/// How each format is unpacked to bf16: quarter g of a block's vector v holds columns
/// column_of(v, 0 ... kOfGroup) of group g. kSymmetric: no code is -128.
template <bool kSymmetric>
struct Int8 {
  static constexpr std::size_t kBits = 8;
  static constexpr std::size_t column_of(std::size_t v, std::size_t i) { return kOfGroup * v + i; }

  Int8() {
    static constexpr auto kLower = bytes_of<128>(0, 128, false);
    static constexpr auto kUpper = bytes_of<128>(0, 128, true);
    for (std::size_t i = 0; i < 2; ++i) {
      lower_[i] = _mm512_loadu_si512(kLower.data() + 64 * i);
      upper_[i] = _mm512_loadu_si512(kUpper.data() + 64 * i);
    }
  }

  /// The first `groups` groups of the block at `from`; zeros for the rest.
  void unpack(const std::uint8_t* from, std::size_t groups, __m512bh (&out)[kVectors]) const {
    const auto bytes = groups * kGroup;
    const std::uint64_t all = ~std::uint64_t{0};
    const __m512i a =
        bytes >= 64 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(all >> (64 - bytes), from);
    const __m512i b = bytes >= 128  ? _mm512_loadu_si512(from + 64)
                      : bytes <= 64 ? _mm512_setzero_si512()
                                    : _mm512_maskz_loadu_epi8(all >> (128 - bytes), from + 64);
    half(__builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13), out[0], out[1]);
    half(__builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15), out[2], out[3]);
  }

 private:
  void half(__m512i q, __m512bh& first, __m512bh& last) const {
    const __m512i magnitude = _mm512_abs_epi8(q);
    const __m512i lower = _mm512_permutex2var_epi8(lower_[0], magnitude, lower_[1]);
    const __m512i upper = _mm512_permutex2var_epi8(upper_[0], magnitude, upper_[1]);
    const __m512i sign = _mm512_set1_epi8(-128);
    constexpr int kAOrBAndC = 0xF8;
    __m512i whole = _mm512_ternarylogic_epi32(upper, q, sign, kAOrBAndC);
    if constexpr (!kSymmetric) {  // the table has no entry for -128's magnitude
      const __mmask64 least = _mm512_movepi8_mask(magnitude);
      whole = _mm512_mask_mov_epi8(whole, least, _mm512_set1_epi8(kUpperOfLeast));
    }
    interleave(lower, whole, first, last);
  }

  // For -128: its lower byte is 0, which the table gives, as for the integer 0.
  static constexpr char kUpperOfLeast = static_cast<char>(to_bf16(-128.0F).bits >> 8);

  __m512i lower_[2];  // bytes of the bf16 of 0 ... 127
  __m512i upper_[2];
};

/// 4-bit codes that index a table of integers.
template <const std::array<std::int8_t, 16>& kIntegers>
struct Nibbles {
  static constexpr std::size_t kBits = 4;
  static constexpr std::size_t column_of(std::size_t v, std::size_t i) {
    return v / 2 + 2 * (v % 2 * kOfGroup + i);  // even columns, then odd ones
  }

  Nibbles() {
    static constexpr auto kLower = bytes_of(kIntegers, false);
    static constexpr auto kUpper = bytes_of(kIntegers, true);
    lower_ = _mm512_loadu_si512(kLower.data());
    upper_ = _mm512_loadu_si512(kUpper.data());
  }

  void unpack(const std::uint8_t* from, std::size_t groups, __m512bh (&out)[kVectors]) const {
    const auto bytes = groups * kGroup / 2;
    const __m512i q = bytes == 64 ? _mm512_loadu_si512(from)
                                  : _mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, from);
    const __m512i nibble = _mm512_set1_epi8(15);
    half(_mm512_and_si512(q, nibble), out[0], out[1]);
    half(_mm512_and_si512(_mm512_srli_epi16(q, 4), nibble), out[2], out[3]);
  }

 private:
  void half(__m512i nibbles, __m512bh& first, __m512bh& last) const {
    interleave(_mm512_shuffle_epi8(lower_, nibbles), _mm512_shuffle_epi8(upper_, nibbles), first,
               last);
  }

  __m512i lower_;  // bytes of the bf16 of each integer
  __m512i upper_;
};

using Int4 = Nibbles<kInt4>;
using Mxfp4 = Nibbles<kTwiceE2m1>;

/// The scales of a block's groups, each in its quarter.
__m512 quarters(const bf16* scales, std::size_t groups) {
  const auto seen = static_cast<__mmask8>((1U << groups) - 1);
  const __m128i few = groups == kBlockGroups
                          ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales))
                          : _mm_maskz_loadu_epi16(seen, scales);
  static constexpr auto kQuarter = [] {
    std::array<std::uint16_t, 32> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = static_cast<std::uint16_t>(i / (words.size() / kBlockGroups));
    }
    return words;
  }();
  constexpr __mmask32 kUpperHalves = 0xAAAAAAAA;
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(
      kUpperHalves, _mm512_loadu_si512(kQuarter.data()), _mm512_castsi128_si512(few)));
}

/// Adds the products of a block of one weight row with M inputs.
template <class Format, std::size_t M>
void add_block(const Format& format, const std::uint8_t* codes, const bf16* scales,
               std::size_t groups, const bf16* x, __m512 (&sums)[M]) {
  __m512bh weights[kVectors];
  format.unpack(codes, groups, weights);
  const __m512 scale = quarters(scales, groups);
#pragma GCC unroll 8
  for (std::size_t m = 0; m < M; ++m) {
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sum = _mm512_dpbf16_ps(sum, weights[v], load_bf16(x + m * kBlock + v * kLanes));
    }
    sums[m] = _mm512_fmadd_ps(sum, scale, sums[m]);
  }
}

/// Up to kRowBlock weight rows of a target.
struct Rows {
  const Weight& weight;
  std::size_t begin;
  std::size_t count;
  const float* bias;  // of the first row, or null
};

/// out[m, n] = x[m] . weight[n] (+ bias[n]) for the first M inputs of x and all these rows. If bit
/// r of `fetched` is set, the memory that follows row r is prefetched meanwhile.
template <class Format, std::size_t M>
void tile(const Rows& rows, ArrangedInputs x, Matrix<float> out, unsigned fetched) {
  constexpr std::size_t kBytesAhead = 4096;
  constexpr std::size_t kBlockBytes = kBlock * Format::kBits / 8;
  const Format format;
  const auto groups = static_cast<std::size_t>(rows.weight.cols) / kGroup;
  const std::size_t row_bytes = groups * kGroup * Format::kBits / 8;
  const std::size_t in_blocks = groups / kBlockGroups * kBlockGroups;
  const std::size_t input_step = x.rows * kBlock;
  const auto* row_codes =
      static_cast<const std::uint8_t*>(rows.weight.data) + rows.begin * row_bytes;
  const bf16* row_scales = rows.weight.scales + rows.begin * groups;
  __m512 sums[M][kRowBlock];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    const std::uint8_t* codes = row_codes;
    const bf16* scales = row_scales;
    const std::size_t ahead = (fetched >> r & 1U) != 0 ? kBytesAhead : 0;
    _mm_prefetch(reinterpret_cast<const char*>(scales) + ahead, _MM_HINT_T0);
    __m512 own[M] = {};
    const bf16* input = x.data;
    for (const bf16* end = scales + in_blocks; scales != end;
         scales += kBlockGroups, codes += kBlockBytes, input += input_step) {
      for (std::size_t byte = 0; byte < kBlockBytes; byte += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead + byte, _MM_HINT_T0);
      }
      add_block(format, codes, scales, kBlockGroups, input, own);
    }
    if (in_blocks < groups) {
      add_block(format, codes, scales, groups - in_blocks, input, own);
    }
    if (r + 1 < rows.count) {  // the last row again in place of missing ones
      row_codes += row_bytes;
      row_scales += groups;
    }
#pragma GCC unroll 8
    for (std::size_t m = 0; m < M; ++m) {
      sums[m][r] = own[m];
    }
  }
#pragma GCC unroll 8
  for (std::size_t m = 0; m < M; ++m) {
    float values[kRowBlock];
    _mm_storeu_ps(values, lane_sums(sums[m]));
    for (std::size_t r = 0; r < rows.count; ++r) {
      out.row(m)[r] = values[r] + (rows.bias == nullptr ? 0.0F : rows.bias[r]);
    }
  }
}

/// The first inputs of x, as many as out has rows, in tiles of similar size. Every tile prefetches
/// a part of the upcoming memory, as a core can wait for only a few lines at a time.
template <class Format>
void all_inputs(const Rows& rows, ArrangedInputs x, Matrix<float> out) {
  constexpr decltype(&tile<Format, 1>) kTiles[kTileInputs] = {
      tile<Format, 1>, tile<Format, 2>, tile<Format, 3>, tile<Format, 4>,
      tile<Format, 5>, tile<Format, 6>, tile<Format, 7>, tile<Format, 8>};
  const std::size_t tiles = (out.rows + kTileInputs - 1) / kTileInputs;
  for (std::size_t t = 0; t < tiles; ++t) {
    unsigned fetched = 0;
    for (std::size_t r = t; r < kRowBlock; r += tiles) {
      fetched |= 1U << r;
    }
    const std::size_t begin = out.rows * t / tiles;
    const std::size_t end = out.rows * (t + 1) / tiles;
    kTiles[end - begin - 1](rows, {x.data + begin * kBlock, x.rows}, out.slice(begin, end),
                            fetched);
  }
}

template <class Format>
void some_rows(const LinearTarget& target, ArrangedInputs x, std::size_t begin, std::size_t end) {
  constexpr std::size_t kInputsTogether = 64;  // as many inputs as stay in the second-level cache
  for (std::size_t m = 0; m < x.rows; m += kInputsTogether) {
    const std::size_t together = std::min(kInputsTogether, x.rows - m);
    for (std::size_t n = begin; n < end; n += kRowBlock) {
      const std::size_t count = std::min(kRowBlock, end - n);
      const float* bias = target.bias == nullptr ? nullptr : target.bias + n;
      const Matrix<float> out(&target.out.row(m)[n], together, count, target.out.stride);
      all_inputs<Format>({*target.weight, n, count, bias}, {x.data + m * kBlock, x.rows}, out);
    }
  }
}

/// Vector v of a block of inputs, from the block's 128 bf16.
template <class Format>
__m512i arranged(const __m512i (&x)[kVectors], std::size_t v) {
  Words index{};  // quarters 0 and 1, of 64 columns
  for (std::size_t i = 0; i < 2 * kOfGroup; ++i) {
    index[i] =
        static_cast<std::uint16_t>(i / kOfGroup * kGroup + Format::column_of(v, i % kOfGroup));
  }
  const auto order = __builtin_bit_cast(__m512i, index);
  const __m512i first = _mm512_permutex2var_epi16(x[0], order, x[1]);
  const __m512i last = _mm512_permutex2var_epi16(x[2], order, x[3]);
  return __builtin_shufflevector(first, last, 0, 1, 2, 3, 8, 9, 10, 11);
}

/// One input: block 0 is written to `out`, each next one `stride` further.
template <class Format>
void arrange(std::span<const float> x, bf16* out, std::size_t stride) {
  constexpr std::size_t kFloats = kLanes / 2;  // floats per vector
  for (std::size_t k = 0; k < x.size(); k += kBlock, out += stride) {
    const auto floats = [&](std::size_t at) {
      const std::size_t left = at < x.size() ? std::min(x.size() - at, kFloats) : 0;
      return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << left) - 1), x.data() + at);
    };
    __m512i columns[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = k + v * kLanes;
      columns[v] =
          __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(floats(at + kFloats), floats(at)));
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(out + v * kLanes, arranged<Format>(columns, v));
    }
  }
}

template <class Format>
void linear_in(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const float> x) {
  const std::size_t blocks = (x.cols + kBlock - 1) / kBlock;
  const auto memory = workspace.take<bf16>(blocks * x.rows * kBlock);
  for_rows(x.rows, x.cols,
           [&](std::size_t m) { arrange<Format>(x.row(m), &memory[m * kBlock], x.rows * kBlock); });
  const ArrangedInputs inputs{memory.data(), x.rows};
  for_weight_rows(targets, [&](const LinearTarget& target, std::size_t begin, std::size_t end,
                               int) { some_rows<Format>(target, inputs, begin, end); });
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

void gemm_quantized_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                         Matrix<const float> x) {
  assert(has_quantized_dots());
  const WeightFormat format = targets.front().weight->format;
  assert(is_quantized(format));
  assert(std::ranges::all_of(
      targets, [=](const LinearTarget& target) { return target.weight->format == format; }));
  const bool symmetric = std::ranges::all_of(
      targets, [](const LinearTarget& target) { return target.weight->symmetric; });
  format == WeightFormat::int8
      ? (symmetric ? linear_in<Int8<true>> : linear_in<Int8<false>>)(workspace, targets, x)
  : format == WeightFormat::int4 ? linear_in<Int4>(workspace, targets, x)
                                 : linear_in<Mxfp4>(workspace, targets, x);
}

}  // namespace winnow::ops::cpu
