#include "ops/kv_page.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/cpu/rounding.h"

namespace winnow::ops {
namespace {

constexpr std::size_t round_up(std::size_t x, std::size_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// The least bf16 that keeps amax / scale within the format's largest code; normal, because the
// inverse of a subnormal may overflow.
bf16 scale_for(std::span<const float> x, float largest_code) {
  float amax = 0.0F;
  for (const float value : x) {
    amax = std::max(amax, std::abs(value));
  }
  if (amax == 0.0F) {
    return to_bf16(1.0F);
  }
  const float exact = std::max(amax / largest_code, std::numeric_limits<float>::min());
  bf16 scale = to_bf16(exact);
  if (to_float(scale) < exact) {
    ++scale.bits;
  }
  return std::isfinite(to_float(scale)) ? scale : to_bf16(1.0F);
}

template <class T>
std::span<T> elements(std::span<std::byte> codes) {
  return {reinterpret_cast<T*>(codes.data()), codes.size() / sizeof(T)};
}

template <class T>
void scatter_key(T* keys, int slot, const T* codes, int head_dim) {
  for (int d = 0; d < head_dim; ++d) {
    keys[d * kPageEntries + slot] = codes[d];
  }
}

template <class T>
void copy_key(const T* from, int from_slot, T* to, int to_slot, int head_dim) {
  for (int d = 0; d < head_dim; ++d) {
    to[d * kPageEntries + to_slot] = from[d * kPageEntries + from_slot];
  }
}

// Calls f with a null pointer of the unsigned integer as wide as the format's elements.
template <class F>
void with_element_type(const PageLayout& layout, const F& f) {
  switch (layout.element_bytes()) {
    case 1:
      return f(static_cast<std::uint8_t*>(nullptr));
    case 2:
      return f(static_cast<std::uint16_t*>(nullptr));
    default:
      return f(static_cast<std::uint32_t*>(nullptr));
  }
}

float decode_element(EntryFormat format, const std::byte* codes, std::size_t index) {
  switch (format) {
    case EntryFormat::f32:
      return reinterpret_cast<const float*>(codes)[index];
    case EntryFormat::bf16:
      return to_float(reinterpret_cast<const bf16*>(codes)[index]);
    case EntryFormat::f8e4m3:
      return to_float(reinterpret_cast<const f8e4m3*>(codes)[index]);
    default:
      return static_cast<float>(reinterpret_cast<const std::int8_t*>(codes)[index]);
  }
}

bf16* scales(const PageLayout& layout, std::byte* page) {
  return reinterpret_cast<bf16*>(page + layout.scales_offset());
}

const bf16* scales(const PageLayout& layout, const std::byte* page) {
  return reinterpret_cast<const bf16*>(page + layout.scales_offset());
}

}  // namespace

std::string_view format_name(EntryFormat format) {
  switch (format) {
    case EntryFormat::f32:
      return "fp32";
    case EntryFormat::bf16:
      return "bf16";
    case EntryFormat::f8e4m3:
      return "fp8";
    case EntryFormat::i8:
      return "int8";
  }
  return "?";
}

std::size_t PageLayout::element_bytes() const {
  switch (format_) {
    case EntryFormat::f32:
      return 4;
    case EntryFormat::bf16:
      return 2;
    default:
      return 1;
  }
}

PageLayout::PageLayout(EntryFormat format, int head_dim) : format_(format), head_dim_(head_dim) {
  require(head_dim > 0 && head_dim % 8 == 0 && head_dim <= 512,
          "head_dim {} is not supported, expected a multiple of 8 up to 512", head_dim);
  values_offset_ =
      static_cast<std::size_t>(kPageEntries) * static_cast<std::size_t>(head_dim) * element_bytes();
  const std::size_t scale_bytes = scaled() ? std::size_t{2} * kPageEntries * sizeof(bf16) : 0;
  page_bytes_ = round_up(2 * values_offset_ + scale_bytes, 64);
}

void encode_row(const PageLayout& layout, std::span<const float> x, EncodedRow& row) {
  row.scale = to_bf16(1.0F);
  switch (layout.format()) {
    case EntryFormat::f32:
      std::memcpy(row.codes.data(), x.data(), x.size_bytes());
      return;
    case EntryFormat::bf16:
      cpu::round_to_bf16(x, elements<bf16>(row.codes).data());
      return;
    case EntryFormat::f8e4m3: {
      row.scale = scale_for(x, kF8E4M3Max);
      const float inverse = 1.0F / to_float(row.scale);
      std::ranges::transform(x, elements<f8e4m3>(row.codes).begin(),
                             [inverse](float value) { return to_f8e4m3(value * inverse); });
      return;
    }
    default: {
      row.scale = scale_for(x, 127.0F);
      const float inverse = 1.0F / to_float(row.scale);
      std::ranges::transform(x, elements<std::int8_t>(row.codes).begin(), [inverse](float value) {
        return static_cast<std::int8_t>(
            std::clamp(std::nearbyint(value * inverse), -127.0F, 127.0F));
      });
    }
  }
}

void decode_row(const PageLayout& layout, const EncodedRow& row, std::span<float> x) {
  const float scale = to_float(row.scale);
  for (std::size_t d = 0; d < x.size(); ++d) {
    x[d] = decode_element(layout.format(), row.codes.data(), d) * scale;
  }
}

void store_entry(const PageLayout& layout, std::byte* page, int slot, const EncodedRow& key,
                 const EncodedRow& value) {
  assert(slot >= 0 && slot < kPageEntries);
  with_element_type(layout, [&]<class T>(T*) {
    scatter_key(reinterpret_cast<T*>(page), slot, reinterpret_cast<const T*>(key.codes.data()),
                layout.head_dim());
  });
  const std::size_t row_bytes = value.codes.size();
  std::memcpy(page + layout.values_offset() + static_cast<std::size_t>(slot) * row_bytes,
              value.codes.data(), row_bytes);
  if (layout.scaled()) {
    scales(layout, page)[slot] = key.scale;
    scales(layout, page)[kPageEntries + slot] = value.scale;
  }
}

void load_entry(const PageLayout& layout, const std::byte* page, int slot, std::span<float> key,
                std::span<float> value) {
  assert(slot >= 0 && slot < kPageEntries);
  const float key_scale = layout.scaled() ? to_float(scales(layout, page)[slot]) : 1.0F;
  const float value_scale =
      layout.scaled() ? to_float(scales(layout, page)[kPageEntries + slot]) : 1.0F;
  const auto dim = static_cast<std::size_t>(layout.head_dim());
  const auto column = static_cast<std::size_t>(slot);
  for (std::size_t d = 0; d < dim; ++d) {
    key[d] = decode_element(layout.format(), page, d * kPageEntries + column) * key_scale;
    value[d] = decode_element(layout.format(), page + layout.values_offset(), column * dim + d) *
               value_scale;
  }
}

void copy_entry(const PageLayout& layout, const std::byte* from, int from_slot, std::byte* to,
                int to_slot) {
  with_element_type(layout, [&]<class T>(T*) {
    copy_key(reinterpret_cast<const T*>(from), from_slot, reinterpret_cast<T*>(to), to_slot,
             layout.head_dim());
  });
  const std::size_t row_bytes =
      static_cast<std::size_t>(layout.head_dim()) * layout.element_bytes();
  std::memcpy(to + layout.values_offset() + static_cast<std::size_t>(to_slot) * row_bytes,
              from + layout.values_offset() + static_cast<std::size_t>(from_slot) * row_bytes,
              row_bytes);
  if (layout.scaled()) {
    for (const int part : {0, kPageEntries}) {
      scales(layout, to)[part + to_slot] = scales(layout, from)[part + from_slot];
    }
  }
}

}  // namespace winnow::ops
