// Template arguments of a kernel from what is known at run time.
#pragma once

#include <type_traits>

#include "ops/cuda/entry_codes.cuh"
#include "ops/cuda/kv_codes.cuh"
#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// How entries of a format are rounded (entry_codes.cuh), and their codes as operands
/// (kv_codes.cuh).
template <EntryFormat kType>
using FormatOf =
    std::conditional_t<kType == EntryFormat::bf16, Bf16Format,
                       std::conditional_t<kType == EntryFormat::f8e4m3, F8Format, I8Format>>;
template <EntryFormat kType>
using CodesOf =
    std::conditional_t<kType == EntryFormat::bf16, Bf16Codes,
                       std::conditional_t<kType == EntryFormat::f8e4m3, F8Codes, I8Codes>>;

/// f.operator()<D>() for the head dimension, one of those that DevicePageLayout accepts.
template <class F>
auto with_head_dim(int head_dim, const F& f) {
  switch (head_dim) {
    case 64:
      return f.template operator()<64>();
    case 80:
      return f.template operator()<80>();
    case 96:
      return f.template operator()<96>();
    default:
      return f.template operator()<128>();
  }
}

/// f.operator()<kType, D>() for the format of entries and the head dimension.
template <class F>
auto with_shape(EntryFormat format, int head_dim, const F& f) {
  return with_head_dim(head_dim, [&]<int D>() {
    switch (format) {
      case EntryFormat::bf16:
        return f.template operator()<EntryFormat::bf16, D>();
      case EntryFormat::f8e4m3:
        return f.template operator()<EntryFormat::f8e4m3, D>();
      default:
        return f.template operator()<EntryFormat::i8, D>();
    }
  });
}

}  // namespace winnow::ops::cuda
