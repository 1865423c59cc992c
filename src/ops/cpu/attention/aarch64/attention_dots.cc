#include "ops/cpu/attention/attention_dots.h"

#include <arm_neon.h>
#include <hwy/base.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/cpu/attention/attention_kernels.h"
#include "ops/cpu/attention/prefetch.h"
#include "ops/cpu/attention/row_blocks.h"
#include "ops/cpu/linear/bf16_dots.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+bf16")
namespace winnow::ops::cpu {
namespace {

// A dot product (BFDOT) adds the products of a pair of neighbours to each of four lanes. Keys are
// channel-major: a pair is two channels of the lane's entry. Values are entry-major: a pair is the
// lane's channel of two entries.
constexpr std::size_t kCodes = 16;  // kCodes codes are interleaved with as many others
constexpr std::size_t kLanes = 4;
constexpr std::size_t kVectors = kCodes / kLanes;
static_assert(kPageEntries == kCodes);

struct Codes {
  uint16x8_t first;
  uint16x8_t last;
};

struct Bf16Codes {
  static constexpr std::size_t kBytes = 2;
  static Codes load(const std::byte* from) {
    const auto* codes = reinterpret_cast<const std::uint16_t*>(from);
    return {vld1q_u16(codes), vld1q_u16(codes + 8)};
  }
};

/// The upper halves of floats: exact for values that bf16 can represent.
uint16x8_t upper_halves(float32x4_t a, float32x4_t b) {
  return vuzp2q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b));
}

struct I8Codes {
  static constexpr std::size_t kBytes = 1;
  static Codes load(const std::byte* from) {
    const int8x16_t codes = vld1q_s8(reinterpret_cast<const std::int8_t*>(from));
    return {bf16_of(vmovl_s8(vget_low_s8(codes))), bf16_of(vmovl_high_s8(codes))};
  }

 private:
  static uint16x8_t bf16_of(int16x8_t codes) {
    return upper_halves(vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes))),
                        vcvtq_f32_s32(vmovl_high_s16(codes)));
  }
};

/// Read as a binary16, the bits of an e4m3 give 2^-8 of its value: code_unit() compensates for
/// that.
struct F8Codes {
  static constexpr std::size_t kBytes = 1;
  static Codes load(const std::byte* from) {
    const int8x16_t codes = vld1q_s8(reinterpret_cast<const std::int8_t*>(from));
    return {bf16_of(vmovl_s8(vget_low_s8(codes))), bf16_of(vmovl_high_s8(codes))};
  }

 private:
  static uint16x8_t bf16_of(int16x8_t codes) {
    const int16x8_t mask = vdupq_n_s16(static_cast<std::int16_t>(0xBF80));
    const float16x8_t halves = vreinterpretq_f16_s16(vandq_s16(vshlq_n_s16(codes, 7), mask));
    return upper_halves(vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves));
  }
};

template <class F>
void with_codes(const PageLayout& layout, const F& f) {
  switch (layout.format()) {
    case EntryFormat::bf16:
      return f(Bf16Codes());
    case EntryFormat::f8e4m3:
      return f(F8Codes());
    case EntryFormat::i8:
      return f(I8Codes());
    case EntryFormat::f32:
    case EntryFormat::q4:  // attends_in_dots() refuses both
      break;
  }
}

/// kCodes pairs of codes.
struct Pairs {
  Pairs(const Codes& a, const Codes& b)
      : vectors{pairs(vzip1q_u16(a.first, b.first)), pairs(vzip2q_u16(a.first, b.first)),
                pairs(vzip1q_u16(a.last, b.last)), pairs(vzip2q_u16(a.last, b.last))} {}

  bfloat16x8_t vectors[kVectors];

 private:
  static bfloat16x8_t pairs(uint16x8_t bits) { return vreinterpretq_bf16_u16(bits); }
};

/// The pair in every lane.
bfloat16x8_t every_lane(const bf16* pair) {
  std::uint32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return vreinterpretq_bf16_u32(vdupq_n_u32(bits));
}

template <class Format, std::size_t R>
void score_rows(const std::byte* keys, std::size_t head_dim, const bf16* query,
                std::size_t query_stride, float* scores, std::size_t score_stride,
                const Upcoming& upcoming) {
  constexpr std::size_t kBytes = kCodes * Format::kBytes;
  float32x4_t sums[R][kVectors] = {};
  for (std::size_t c = 0; c < head_dim; c += 2) {
    upcoming.fetch(c, 2);
    const Pairs pairs(Format::load(keys + c * kBytes), Format::load(keys + (c + 1) * kBytes));
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      const bfloat16x8_t q = every_lane(query + r * query_stride + c);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = vbfdotq_f32(sums[r][v], pairs.vectors[v], q);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      vst1q_f32(scores + r * score_stride + v * kLanes, sums[r][v]);
    }
  }
}

template <class Format, std::size_t R>
void accumulate_rows(const std::byte* values, std::size_t head_dim, std::size_t entries,
                     const bf16* weights, std::size_t weight_stride, float* out,
                     std::size_t out_stride, const Upcoming& upcoming) {
  const std::size_t row_bytes = head_dim * Format::kBytes;
  for (std::size_t c = 0; c < head_dim; c += kCodes) {
    float32x4_t sums[R][kVectors];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = vld1q_f32(out + r * out_stride + c + v * kLanes);
      }
    }
    const std::byte* entry = values + c * Format::kBytes;
    for (std::size_t j = 0; j < entries; j += 2, entry += 2 * row_bytes) {
      if (c == 0) {
        upcoming.fetch(j, 2);
      }
      const bool seen = j + 1 < entries;  // otherwise the memory may hold a NaN
      const Pairs pairs(Format::load(entry), seen ? Format::load(entry + row_bytes) : Codes{});
#pragma GCC unroll 4
      for (std::size_t r = 0; r < R; ++r) {
        const bfloat16x8_t w = every_lane(weights + r * weight_stride + j);
#pragma GCC unroll 4
        for (std::size_t v = 0; v < kVectors; ++v) {
          sums[r][v] = vbfdotq_f32(sums[r][v], pairs.vectors[v], w);
        }
      }
    }
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        vst1q_f32(out + r * out_stride + c + v * kLanes, sums[r][v]);
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
  with_codes(layout, [&]<class Format>(Format) {
    for_row_blocks<kRowsAtOnce>(rows, [&]<std::size_t R>(std::size_t row) {
      score_rows<Format, R>(page, head_dim, query + row * query_stride, query_stride,
                            scores + row * score_stride, score_stride,
                            row == 0 ? Upcoming(upcoming, head_dim) : Upcoming());
    });
  });
}

void accumulate(const PageLayout& layout, const std::byte* page, int entries, const bf16* weights,
                std::size_t weight_stride, std::size_t rows, float* out, std::size_t out_stride,
                std::span<const std::byte> upcoming) {
  with_codes(layout, [&]<class Format>(Format) {
    for_row_blocks<kRowsAtOnce>(rows, [&]<std::size_t R>(std::size_t row) {
      accumulate_rows<Format, R>(page + layout.values_offset(),
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
  constexpr int kChannels = 32;  // the contract guarantees multiples of 32, although 16 would do
  return has_bf16_dots() && !layout.joint() && layout.head_dim() % kChannels == 0 &&
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
