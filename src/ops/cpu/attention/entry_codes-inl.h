// Reading the codes of a cache page as vectors of float, for the target being compiled (Highway
// -inl style).

// The guard is per target: foreach_target.h includes this file once for each.
#if defined(WINNOW_OPS_CPU_ENTRY_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_OPS_CPU_ENTRY_CODES_INL_H_
#undef WINNOW_OPS_CPU_ENTRY_CODES_INL_H_
#else
#define WINNOW_OPS_CPU_ENTRY_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/codebook.h"
#include "ops/kv_page.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Codes of each storage format as float vectors, without scales. They start at index `index` of a
// part of a page; the index is a multiple of the lanes.
struct F32Codes {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* part, std::size_t index) {
    return hn::LoadU(d, reinterpret_cast<const float*>(part) + index);
  }
};

struct Bf16Codes {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* part, std::size_t index) {
    const hn::RebindToUnsigned<D> du32;
    const hn::Rebind<std::uint16_t, D> du16;
    const auto* codes = reinterpret_cast<const std::uint16_t*>(part) + index;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, codes))));
  }
};

// Read as a binary16, the bits of an e4m3 give 2^-8 of its value: code_unit() compensates for that.
struct F8Codes {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* part, std::size_t index) {
    const hn::Rebind<std::int8_t, D> di8;
    const hn::Rebind<std::int16_t, D> di16;
    const hn::Rebind<hwy::float16_t, D> df16;
    const auto* codes = reinterpret_cast<const std::int8_t*>(part) + index;
    const auto wide = hn::PromoteTo(di16, hn::LoadU(di8, codes));
    const auto mask = hn::Set(di16, static_cast<std::int16_t>(0xBF80));
    return hn::PromoteTo(d, hn::BitCast(df16, hn::And(hn::ShiftLeft<7>(wide), mask)));
  }
};

struct I8Codes {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* part, std::size_t index) {
    const hn::Rebind<std::int8_t, D> di8;
    const hn::Rebind<std::int32_t, D> di32;
    const auto* codes = reinterpret_cast<const std::int8_t*>(part) + index;
    return hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(di8, codes)));
  }
};

// Every lane loads the word that holds its code and shifts it down; a permutation looks it up.
struct Q4Codes {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* part, std::size_t index) {
    if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::Set(d, level_of(packed_code(part, index)));
    } else {
      const hn::RebindToUnsigned<D> du32;
      const hn::Repartition<std::uint64_t, D> du64;
      std::uint64_t codes;
      std::memcpy(&codes, part + index / 16 * 8, sizeof(codes));
      const auto words = hn::BitCast(du32, hn::Set(du64, codes));
      alignas(64) static constexpr std::uint32_t kShifts[16] = {0,  0,  4,  4,  8,  8,  12, 12,
                                                                16, 16, 20, 20, 24, 24, 28, 28};
      return look_up(d, hn::Shr(words, hn::LoadU(du32, kShifts + index % 16)));
    }
  }

 private:
  // The level that the lowest four bits of each lane select.
  template <class D>
  static HWY_INLINE hn::Vec<D> look_up(D d, hn::Vec<hn::RebindToUnsigned<D>> words) {
    const hn::RebindToUnsigned<D> du32;
    const hn::RebindToSigned<D> di32;
    if constexpr (hn::MaxLanes(D()) >= 16) {
      alignas(64) static constexpr float kSigned[16] = {
          kLevels[0],  kLevels[1],  kLevels[2],  kLevels[3],  kLevels[4],  kLevels[5],
          kLevels[6],  kLevels[7],  -kLevels[0], -kLevels[1], -kLevels[2], -kLevels[3],
          -kLevels[4], -kLevels[5], -kLevels[6], -kLevels[7]};
      const auto code = hn::And(words, hn::Set(du32, 15U));
      return hn::TableLookupLanes(hn::LoadU(d, kSigned),
                                  hn::IndicesFromVec(d, hn::BitCast(di32, code)));
    } else {
      constexpr std::uint32_t kEntries = hn::MaxLanes(D()) >= 8 ? 8 : 4;  // of one lookup table
      const auto number =
          hn::IndicesFromVec(d, hn::BitCast(di32, hn::And(words, hn::Set(du32, kEntries - 1))));
      const auto sign = hn::ShiftLeft<28>(hn::And(words, hn::Set(du32, 8U)));
      auto size = hn::TableLookupLanes(hn::LoadU(d, kLevels), number);
      if constexpr (kEntries == 4) {
        const auto upper = hn::TestBit(words, hn::Set(du32, 4U));
        size = hn::IfThenElse(hn::RebindMask(d, upper),
                              hn::TableLookupLanes(hn::LoadU(d, kLevels + 4), number), size);
      }
      return hn::Xor(size, hn::BitCast(d, sign));
    }
  }
};

// Calls f with a tag type for `format`.
template <class F>
HWY_INLINE void with_codes(EntryFormat format, const F& f) {
  switch (format) {
    case EntryFormat::f32:
      return f(F32Codes());
    case EntryFormat::bf16:
      return f(Bf16Codes());
    case EntryFormat::f8e4m3:
      return f(F8Codes());
    case EntryFormat::q4:
      return f(Q4Codes());
    case EntryFormat::i8:
      return f(I8Codes());
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
