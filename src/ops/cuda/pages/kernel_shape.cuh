// Template arguments of a kernel from what is known at run time.
#pragma once

#include <stdexcept>

#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/kv_codes.cuh"
#include "ops/cuda/pages/q4_codes.cuh"
#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// How entries of a format are rounded (entry_codes.cuh), and their codes as operands
/// (kv_codes.cuh).
template <EntryFormat kType>
struct FormatTypes;
template <>
struct FormatTypes<EntryFormat::bf16> {
  using Format = Bf16Format;
  using Codes = Bf16Codes;
};
template <>
struct FormatTypes<EntryFormat::f8e4m3> {
  using Format = F8Format;
  using Codes = F8Codes;
};
template <>
struct FormatTypes<EntryFormat::i8> {
  using Format = I8Format;
  using Codes = I8Codes;
};
template <>
struct FormatTypes<EntryFormat::q4> {
  using Format = Q4Format;
  using Codes = Q4Codes;
};
template <EntryFormat kType>
using FormatOf = typename FormatTypes<kType>::Format;
template <EntryFormat kType>
using CodesOf = typename FormatTypes<kType>::Codes;

/// f.operator()<D>() for the head dimension, one of those that has_own_kernels() names.
template <class F>
auto with_head_dim(int head_dim, const F& f) {
  switch (head_dim) {
    case 64:
      return f.template operator()<64>();
    case 80:
      return f.template operator()<80>();
    case 96:
      return f.template operator()<96>();
    case 128:
      return f.template operator()<128>();
    default:
      throw std::logic_error("no kernels are built for heads of so many channels");
  }
}

/// f.operator()<kType>() for the format of entries.
template <class F>
auto with_format(EntryFormat format, const F& f) {
  switch (format) {
    case EntryFormat::bf16:
      return f.template operator()<EntryFormat::bf16>();
    case EntryFormat::f8e4m3:
      return f.template operator()<EntryFormat::f8e4m3>();
    case EntryFormat::q4:
      return f.template operator()<EntryFormat::q4>();
    case EntryFormat::i8:
      return f.template operator()<EntryFormat::i8>();
    case EntryFormat::f32:
      break;
  }
  throw std::logic_error("no kernels are built for entries in this format");
}

/// f.operator()<kType, D>() for the format of entries and the head dimension.
template <class F>
auto with_shape(EntryFormat format, int head_dim, const F& f) {
  return with_head_dim(head_dim, [&]<int D>() {
    return with_format(format,
                       [&]<EntryFormat kType>() { return f.template operator()<kType, D>(); });
  });
}

/// The same for kernels of any shape: D is 0 if it is a run-time argument (head_dim.cuh). `own`:
/// the shape has specialised kernels.
template <class F>
auto with_any_head_dim(int head_dim, bool own, const F& f) {
  return own ? with_head_dim(head_dim, f) : f.template operator()<0>();
}
template <class F>
auto with_any_shape(EntryFormat format, int head_dim, bool own, const F& f) {
  return with_any_head_dim(head_dim, own, [&]<int D>() {
    return with_format(format,
                       [&]<EntryFormat kType>() { return f.template operator()<kType, D>(); });
  });
}

}  // namespace winnow::ops::cuda
