#include "ops/cuda/pages/kv_page.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/codebook.h"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::ops::cuda {
namespace {

PageAddress address_of(const DevicePageLayout& layout) {
  return {layout.head_dim(), layout.code_bits()};
}

// Calls f(part, index, place) for all 4-bit codes of a page: number `index` of the host's codes
// from byte `part` on, and its place on the device.
template <class F>
void each_code(const DevicePageLayout& layout, const F& f) {
  const PageLayout& host = layout.host();
  const PageAddress address = address_of(layout);
  for (std::size_t entry = 0; entry < kPageEntries; ++entry) {
    const int slot = static_cast<int>(entry);
    const std::size_t values = host.values_offset() + entry * host.row_bytes();
    for (int d = 0; d < host.head_dim(); ++d) {
      const auto channel = static_cast<std::size_t>(d);
      f(std::size_t{0}, channel * kPageEntries + entry, address.key_code(slot, d));
      f(values, channel, address.value_code(slot, d));
    }
  }
}

// Calls f(host, device, bytes) for the positions of a page's values that are whole bytes.
template <class F>
void each_number(const DevicePageLayout& layout, const F& f) {
  const PageLayout& host = layout.host();
  const PageAddress address = address_of(layout);
  const int bytes = address.code_bits / 8;
  const auto number = [&](std::size_t from, int to) {
    f(from, static_cast<std::size_t>(to), static_cast<std::size_t>(bytes));
  };
  for (int entry = 0; entry < kPageEntries; ++entry) {
    for (int d = 0; d < host.head_dim(); ++d) {
      const auto key = static_cast<std::size_t>((d * kPageEntries + entry) * bytes);
      const auto value = static_cast<std::size_t>((entry * host.head_dim() + d) * bytes);
      number(key, address.key(entry, d));
      number(host.values_offset() + value, address.value(entry, d));
    }
  }
}

// The same for all parts of a page except 4-bit codes.
template <class F>
void each_part(const DevicePageLayout& layout, const F& f) {
  if (layout.code_bits() >= 8) {
    each_number(layout, f);
  }
  if (layout.host().scaled()) {
    f(layout.host().scales_offset(), static_cast<std::size_t>(address_of(layout).key_scale(0)),
      std::size_t{2} * kPageEntries * sizeof(bf16));
  }
}

}  // namespace

DevicePageLayout::DevicePageLayout(EntryFormat format, int head_dim) : host_(format, head_dim) {
  require(format != EntryFormat::f32,
          "cache entries cannot be stored as {} on the device (bf16, fp8, int8 and q4 can)",
          format_name(format));
  require(head_dim <= kMostHeadDim,
          "head_dim {} is not supported on the device, expected a multiple of 8 up to {}", head_dim,
          kMostHeadDim);
}

int DevicePageLayout::code_bits() const {
  switch (format()) {
    case EntryFormat::bf16:
      return 16;
    case EntryFormat::f8e4m3:
    case EntryFormat::i8:
      return 8;
    case EntryFormat::q4:
      return 4;
    case EntryFormat::f32:  // refused by the constructor
      break;
  }
  return 32;
}

std::size_t DevicePageLayout::page_bytes() const {
  return static_cast<std::size_t>(address_of(*this).page_bytes());
}

void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page) {
  if (layout.code_bits() == 4) {
    std::fill_n(device_page, address_of(layout).key_scale(0), std::byte{0});
    each_code(layout, [=](std::size_t part, std::size_t index, CodePlace place) {
      std::uint32_t word;
      std::memcpy(&word, device_page + place.offset, sizeof(word));
      word |= place_code(packed_code(page + part, index), place.index);
      std::memcpy(device_page + place.offset, &word, sizeof(word));
    });
  }
  each_part(layout, [=](std::size_t host, std::size_t device, std::size_t bytes) {
    std::copy_n(page + host, bytes, device_page + device);
  });
}

void restore_page(const DevicePageLayout& layout, const std::byte* device_page, std::byte* page) {
  if (layout.code_bits() == 4) {
    each_code(layout, [=](std::size_t part, std::size_t index, CodePlace place) {
      std::uint32_t word;
      std::memcpy(&word, device_page + place.offset, sizeof(word));
      set_packed_code(page + part, index, code_from(word, place.index));
    });
  }
  each_part(layout, [=](std::size_t host, std::size_t device, std::size_t bytes) {
    std::copy_n(device_page + device, bytes, page + host);
  });
}

}  // namespace winnow::ops::cuda
