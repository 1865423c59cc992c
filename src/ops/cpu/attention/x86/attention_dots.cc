#include "ops/cpu/attention/attention_dots.h"

#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/prefetch.h"
#include "ops/cpu/attention/row_blocks.h"
#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/x86/avx512_bf16.h"

#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")
namespace winnow::ops::cpu {
namespace {

// A dot product instruction adds the products of a pair of neighbours to each of 16 lanes. Keys are
// channel-major: a pair is two channels of the lane's entry. Values are entry-major: a pair is the
// lane's channel of two entries.
constexpr std::size_t kLanes = 16;
static_assert(kPageEntries == kLanes);
/// Vectors of pairs that are interleaved together.
constexpr std::size_t kVectors = 2;
constexpr std::size_t kKeyChannels = 2 * kVectors;
constexpr std::size_t kValueChannels = kLanes * kVectors;

using Pairs = __m512bh[kVectors];

/// Indices for a permutation: index(vector, lane, half) is the source position of half a pair.
template <class T, class Index>
constexpr std::array<T, 64 / sizeof(T)> order_of(std::size_t vector, Index index) {
  std::array<T, 64 / sizeof(T)> order{};
  for (std::size_t i = 0; i < 2 * kLanes; ++i) {
    order[i] = static_cast<T>(index(vector, i / 2, i % 2));
  }
  return order;
}

struct Bf16Pairs {
  static constexpr std::size_t kBytes = 2;

  /// Channels [channel, channel + kKeyChannels) of all entries.
  void keys(const std::byte* keys, std::size_t channel, Pairs& out) const {
    static constexpr auto kOrder = order_of<std::uint16_t>(
        0, [](std::size_t, std::size_t lane, std::size_t half) { return kLanes * half + lane; });
    const __m512i order = _mm512_loadu_si512(kOrder.data());
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m512i words = _mm512_loadu_si512(keys + (channel + 2 * v) * kLanes * kBytes);
      out[v] = reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(order, words));
    }
  }

  /// kValueChannels channels of an entry and of the next one, which reads as zero unless `seen`.
  void values(const std::byte* entry, const std::byte* next, bool seen, Pairs& out) const {
    static constexpr auto kIndex = [](std::size_t vector, std::size_t lane, std::size_t half) {
      return kValueChannels * half + kLanes * vector + lane;
    };
    static constexpr std::array kOrders = {order_of<std::uint16_t>(0, kIndex),
                                           order_of<std::uint16_t>(1, kIndex)};
    const __m512i first = _mm512_loadu_si512(entry);
    const __m512i second = _mm512_maskz_loadu_epi16(seen ? ~__mmask32{0} : 0, next);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m512i order = _mm512_loadu_si512(kOrders[v].data());
      out[v] = reinterpret_cast<__m512bh>(_mm512_permutex2var_epi16(first, order, second));
    }
  }
};

/// The bytes of the bf16 values of a code's magnitudes 0 ... 127, divided by code_unit().
struct Magnitudes {
  explicit Magnitudes(const PageLayout& layout) {
    for (std::size_t i = 0; i < 128; ++i) {
      const auto code = static_cast<std::uint8_t>(i);
      const float value =
          layout.format() == EntryFormat::i8 ? static_cast<float>(i) : to_float(f8e4m3{code});
      const bf16 stored = to_bf16(value / code_unit(layout));
      lower[i] = static_cast<std::uint8_t>(stored.bits);
      upper[i] = static_cast<std::uint8_t>(stored.bits >> 8);
    }
  }

  std::array<std::uint8_t, 128> lower;
  std::array<std::uint8_t, 128> upper;
};

/// fp8 or int8: they differ in how a sign and a magnitude make a code.
template <EntryFormat Format>
class BytePairs {
 public:
  static constexpr std::size_t kBytes = 1;

  explicit BytePairs(const PageLayout& layout) {
    static const Magnitudes magnitudes(layout);
    for (std::size_t i = 0; i < 2; ++i) {
      lower_[i] = _mm512_loadu_si512(magnitudes.lower.data() + 64 * i);
      upper_[i] = _mm512_loadu_si512(magnitudes.upper.data() + 64 * i);
    }
  }

  void keys(const std::byte* keys, std::size_t channel, Pairs& out) const {
    static constexpr auto kOrder = byte_order(kLanes, 2 * kLanes);
    expand(kOrder, _mm512_loadu_si512(keys + channel * kLanes), out);
  }

  void values(const std::byte* entry, const std::byte* next, bool seen, Pairs& out) const {
    static constexpr auto kOrder = byte_order(kValueChannels, kLanes);
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entry));
    const __m256i second = _mm256_maskz_loadu_epi8(seen ? ~__mmask32{0} : 0, next);
    expand(kOrder, __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7), out);
  }

 private:
  using Order = std::array<std::uint8_t, 64>;

  /// Interleaving moves the first eight bytes of each quarter to the first vector and the others to
  /// the second: this order compensates. Halves of a pair are `half` bytes apart, vectors `vector`.
  static constexpr Order byte_order(std::size_t half, std::size_t vector) {
    Order order{};
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t lane = i / 16 * 4 + i % 8 / 2;
      order[i] = static_cast<std::uint8_t>(i % 2 * half + i % 16 / 8 * vector + lane);
    }
    return order;
  }

  void expand(const Order& order, __m512i codes, Pairs& out) const {
    constexpr auto kAll = ~__mmask64{0};  // GCC 12 warns about the unmasked one's undefined operand
    const __m512i q = _mm512_maskz_permutexvar_epi8(kAll, _mm512_loadu_si512(order.data()), codes);
    const __m512i magnitude = Format == EntryFormat::i8 ? _mm512_abs_epi8(q) : q;
    const __m512i lower = _mm512_permutex2var_epi8(lower_[0], magnitude, lower_[1]);
    const __m512i upper = _mm512_permutex2var_epi8(upper_[0], magnitude, upper_[1]);
    constexpr int kAOrBAndC = 0xF8;
    const __m512i signs = _mm512_set1_epi8(-128);
    interleave(lower, _mm512_ternarylogic_epi32(upper, q, signs, kAOrBAndC), out[0], out[1]);
  }

  __m512i lower_[2];
  __m512i upper_[2];
};

/// Calls f with the converter of the layout's format to pairs.
template <class F>
void with_pairs(const PageLayout& layout, const F& f) {
  switch (layout.format()) {
    case EntryFormat::bf16:
      return f(Bf16Pairs());
    case EntryFormat::f8e4m3:
      return f(BytePairs<EntryFormat::f8e4m3>(layout));
    case EntryFormat::i8:
      return f(BytePairs<EntryFormat::i8>(layout));
    case EntryFormat::f32:
    case EntryFormat::q4:  // attends_in_dots() refuses both
      break;
  }
}

/// The pair in every lane.
__m512bh every_lane(const bf16* pair) {
  std::int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

template <class Codes, std::size_t R>
void score_rows(const Codes& codes, const std::byte* keys, std::size_t head_dim, const bf16* query,
                std::size_t query_stride, float* scores, std::size_t score_stride,
                const Upcoming& upcoming) {
  __m512 sums[R][kVectors] = {};
  for (std::size_t c = 0; c < head_dim; c += kKeyChannels) {
    upcoming.fetch(c, kKeyChannels);
    Pairs pairs;
    codes.keys(keys, c, pairs);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        const __m512bh q = every_lane(query + r * query_stride + c + 2 * v);
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], pairs[v], q);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) {
    _mm512_storeu_ps(scores + r * score_stride, sums[r][0] + sums[r][1]);
  }
}

template <class Codes, std::size_t R>
void accumulate_rows(const Codes& codes, const std::byte* values, std::size_t head_dim,
                     std::size_t entries, const bf16* weights, std::size_t weight_stride,
                     float* out, std::size_t out_stride, const Upcoming& upcoming) {
  const std::size_t row_bytes = head_dim * Codes::kBytes;
  for (std::size_t c = 0; c < head_dim; c += kValueChannels) {
    __m512 sums[R][kVectors];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_loadu_ps(out + r * out_stride + c + v * kLanes);
      }
    }
    const std::byte* entry = values + c * Codes::kBytes;
    for (std::size_t j = 0; j < entries; j += 2, entry += 2 * row_bytes) {
      if (c == 0) {
        upcoming.fetch(j, 2);
      }
      Pairs pairs;
      codes.values(entry, entry + row_bytes, j + 1 < entries, pairs);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < R; ++r) {
        const __m512bh w = every_lane(weights + r * weight_stride + j);
#pragma GCC unroll 2
        for (std::size_t v = 0; v < kVectors; ++v) {
          sums[r][v] = _mm512_dpbf16_ps(sums[r][v], pairs[v], w);
        }
      }
    }
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        _mm512_storeu_ps(out + r * out_stride + c + v * kLanes, sums[r][v]);
      }
    }
  }
}

/// Rows whose sums are kept in registers at the same time.
constexpr std::size_t kRowsAtOnce = 4;

void score(const PageLayout& layout, const std::byte* page, const bf16* query,
           std::size_t query_stride, std::size_t rows, float* scores, std::size_t score_stride,
           std::span<const std::byte> upcoming) {
  const auto head_dim = static_cast<std::size_t>(layout.head_dim());
  with_pairs(layout, [&]<class Codes>(const Codes& codes) {
    for_row_blocks<kRowsAtOnce>(rows, [&]<std::size_t R>(std::size_t row) {
      score_rows<Codes, R>(codes, page, head_dim, query + row * query_stride, query_stride,
                           scores + row * score_stride, score_stride,
                           row == 0 ? Upcoming(upcoming, head_dim) : Upcoming());
    });
  });
}

void accumulate(const PageLayout& layout, const std::byte* page, int entries, const bf16* weights,
                std::size_t weight_stride, std::size_t rows, float* out, std::size_t out_stride,
                std::span<const std::byte> upcoming) {
  with_pairs(layout, [&]<class Codes>(const Codes& codes) {
    for_row_blocks<kRowsAtOnce>(rows, [&]<std::size_t R>(std::size_t row) {
      accumulate_rows<Codes, R>(codes, page + layout.values_offset(),
                                static_cast<std::size_t>(layout.head_dim()),
                                static_cast<std::size_t>(entries), weights + row * weight_stride,
                                weight_stride, out + row * out_stride, out_stride,
                                row == 0 ? Upcoming(upcoming, kPageEntries) : Upcoming());
    });
  });
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

bool attends_in_dots(const PageLayout& layout) {
  return has_bf16_dots() && !layout.joint() && layout.head_dim() % kValueChannels == 0 &&
         layout.format() != EntryFormat::f32 && layout.format() != EntryFormat::q4;
}

void score_page_in_dots(const PageLayout& layout, const std::byte* page, const bf16* query,
                        std::size_t query_stride, std::size_t rows, float* scores,
                        std::size_t score_stride, std::span<const std::byte> upcoming) {
  assert(attends_in_dots(layout));
  score(layout, page, query, query_stride, rows, scores, score_stride, upcoming);
}

void accumulate_page_in_dots(const PageLayout& layout, const std::byte* page, int entries,
                             const bf16* weights, std::size_t weight_stride, std::size_t rows,
                             float* out, std::size_t out_stride,
                             std::span<const std::byte> upcoming) {
  assert(attends_in_dots(layout));
  accumulate(layout, page, entries, weights, weight_stride, rows, out, out_stride, upcoming);
}

}  // namespace winnow::ops::cpu
