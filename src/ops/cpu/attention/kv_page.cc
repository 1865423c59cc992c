#include "ops/kv_page.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/codebook.h"
#include "ops/cpu/rounding.h"

namespace winnow::ops {
namespace {

constexpr std::size_t round_up(std::size_t x, std::size_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// The smallest bf16 that keeps amax / scale within the format's largest code; normal, because the
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

// The root mean square of x, computed relative to its largest magnitude so that no square
// overflows. Zero if it is not a normal number, because its inverse may overflow. Sums have the
// same order as in a warp on the device, whose lanes hold pairs of channels half a head apart.
bf16 mean_size(std::span<const float> x) {
  constexpr std::size_t kLanes = 32;
  float amax = 0.0F;
  for (const float value : x) {
    amax = std::max(amax, std::abs(value));
  }
  if (!(amax >= std::numeric_limits<float>::min())) {
    return to_bf16(0.0F);
  }
  const float inverse = 1.0F / amax;
  std::array<float, kLanes> sums{};
  const std::size_t half = x.size() / 2;
  for (std::size_t d = 0; d < half; ++d) {
    for (const float value : {x[d] * inverse, x[d + half] * inverse}) {
      sums[d % kLanes] += value * value;
    }
  }
  for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
    for (std::size_t lane = 0; lane < step; ++lane) {
      sums[lane] += sums[lane + step];
    }
  }
  const float size = amax * std::sqrt(sums[0] / static_cast<float>(x.size()));
  const bf16 scale = to_bf16(size < std::numeric_limits<float>::min() ? 0.0F : size);
  return std::isfinite(to_float(scale)) ? scale : to_bf16(1.0F);
}

template <class T>
std::span<T> elements(std::span<std::byte> codes) {
  return {reinterpret_cast<T*>(codes.data()), codes.size() / sizeof(T)};
}

// Calls f(read, write) for the format: read(codes, index) and write(codes, index, code) copy codes
// without conversion.
template <class F>
void with_elements(EntryFormat format, const F& f) {
  const auto plain = [&]<class T>(T*) {
    f([](const std::byte* codes,
         std::size_t index) { return reinterpret_cast<const T*>(codes)[index]; },
      [](std::byte* codes, std::size_t index, T code) {
        reinterpret_cast<T*>(codes)[index] = code;
      });
  };
  switch (format) {
    case EntryFormat::f32:
      return plain(static_cast<std::uint32_t*>(nullptr));
    case EntryFormat::bf16:
      return plain(static_cast<std::uint16_t*>(nullptr));
    case EntryFormat::q4:
      return f(packed_code, set_packed_code);
    case EntryFormat::f8e4m3:
    case EntryFormat::i8:
      return plain(static_cast<std::uint8_t*>(nullptr));
  }
}

float dequantize_element(EntryFormat format, const std::byte* codes, std::size_t index) {
  switch (format) {
    case EntryFormat::f32:
      return reinterpret_cast<const float*>(codes)[index];
    case EntryFormat::bf16:
      return to_float(reinterpret_cast<const bf16*>(codes)[index]);
    case EntryFormat::f8e4m3:
      return to_float(reinterpret_cast<const f8e4m3*>(codes)[index]);
    case EntryFormat::q4:
      return level_of(packed_code(codes, index));
    case EntryFormat::i8:
      break;
  }
  return static_cast<float>(reinterpret_cast<const std::int8_t*>(codes)[index]);
}

bf16* scales(const PageLayout& layout, std::byte* page) {
  return reinterpret_cast<bf16*>(page + layout.scales_offset());
}

const bf16* scales(const PageLayout& layout, const std::byte* page) {
  return reinterpret_cast<const bf16*>(page + layout.scales_offset());
}

std::size_t row_bytes_of(EntryFormat format, std::size_t head_dim) {
  switch (format) {
    case EntryFormat::f32:
      return head_dim * 4;
    case EntryFormat::bf16:
      return head_dim * 2;
    case EntryFormat::q4:
      return round_up(head_dim, 16) / 2;
    case EntryFormat::f8e4m3:
    case EntryFormat::i8:
      break;
  }
  return head_dim;
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
    case EntryFormat::q4:
      return "q4";
  }
  return "?";
}

PageLayout::PageLayout(EntryFormat format, int head_dim, bool joint)
    : format_(format), head_dim_(head_dim), joint_(joint) {
  require(head_dim > 0 && head_dim % 8 == 0 && head_dim <= kMostEntryChannels,
          "head_dim {} is not supported, expected a multiple of 8 up to {}", head_dim,
          kMostEntryChannels);
  const auto dim = static_cast<std::size_t>(head_dim);
  row_bytes_ = row_bytes_of(format, dim);
  values_offset_ = dim * row_bytes_of(format, kPageEntries);
  const std::size_t scale_bytes =
      scaled() ? (first_value_scale() + kPageEntries) * sizeof(bf16) : 0;
  page_bytes_ = round_up(scales_offset() + scale_bytes, 64);
}

void quantize_row(const PageLayout& layout, std::span<const float> x, QuantizedRow& row) {
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
    case EntryFormat::q4: {
      row.scale = mean_size(x);
      const float scale = to_float(row.scale);
      const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
      std::ranges::fill(row.codes, std::byte{0});
      for (std::size_t d = 0; d < x.size(); ++d) {
        set_packed_code(row.codes.data(), d, nearest_code(x[d] * inverse));
      }
      return;
    }
    case EntryFormat::i8: {
      row.scale = scale_for(x, 127.0F);
      const float inverse = 1.0F / to_float(row.scale);
      std::ranges::transform(x, elements<std::int8_t>(row.codes).begin(), [inverse](float value) {
        return static_cast<std::int8_t>(
            std::clamp(std::nearbyint(value * inverse), -127.0F, 127.0F));
      });
    }
  }
}

void dequantize_row(const PageLayout& layout, const QuantizedRow& row, std::span<float> x) {
  const float scale = to_float(row.scale);
  for (std::size_t d = 0; d < x.size(); ++d) {
    x[d] = dequantize_element(layout.format(), row.codes.data(), d) * scale;
  }
}

void store_entry(const PageLayout& layout, std::byte* page, int slot, const QuantizedRow& key,
                 const QuantizedRow& value) {
  assert(slot >= 0 && slot < kPageEntries);
  const auto column = static_cast<std::size_t>(slot);
  with_elements(layout.format(), [&](const auto& read, const auto& write) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.head_dim()); ++d) {
      write(page, d * kPageEntries + column, read(key.codes.data(), d));
    }
  });
  if (layout.scaled()) {
    scales(layout, page)[slot] = key.scale;
  }
  if (layout.joint()) {
    return;
  }
  std::memcpy(page + layout.values_offset() + column * layout.row_bytes(), value.codes.data(),
              layout.row_bytes());
  if (layout.scaled()) {
    scales(layout, page)[kPageEntries + slot] = value.scale;
  }
}

void load_entry(const PageLayout& layout, const std::byte* page, int slot, std::span<float> key,
                std::span<float> value) {
  assert(slot >= 0 && slot < kPageEntries);
  const float key_scale = layout.scaled() ? to_float(scales(layout, page)[slot]) : 1.0F;
  const auto dim = static_cast<std::size_t>(layout.head_dim());
  const auto column = static_cast<std::size_t>(slot);
  for (std::size_t d = 0; d < dim; ++d) {
    key[d] = dequantize_element(layout.format(), page, d * kPageEntries + column) * key_scale;
  }
  if (layout.joint()) {
    std::copy_n(key.begin(), dim, value.begin());
    return;
  }
  const float value_scale =
      layout.scaled() ? to_float(scales(layout, page)[kPageEntries + slot]) : 1.0F;
  const std::byte* values = page + layout.values_offset() + column * layout.row_bytes();
  for (std::size_t d = 0; d < dim; ++d) {
    value[d] = dequantize_element(layout.format(), values, d) * value_scale;
  }
}

void copy_entry(const PageLayout& layout, const std::byte* from, int from_slot, std::byte* to,
                int to_slot) {
  const auto from_column = static_cast<std::size_t>(from_slot);
  const auto to_column = static_cast<std::size_t>(to_slot);
  with_elements(layout.format(), [&](const auto& read, const auto& write) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(layout.head_dim()); ++d) {
      write(to, d * kPageEntries + to_column, read(from, d * kPageEntries + from_column));
    }
  });
  if (layout.scaled()) {
    scales(layout, to)[to_slot] = scales(layout, from)[from_slot];
  }
  if (layout.joint()) {
    return;
  }
  std::memcpy(to + layout.values_offset() + to_column * layout.row_bytes(),
              from + layout.values_offset() + from_column * layout.row_bytes(), layout.row_bytes());
  if (layout.scaled()) {
    scales(layout, to)[kPageEntries + to_slot] = scales(layout, from)[kPageEntries + from_slot];
  }
}

}  // namespace winnow::ops
