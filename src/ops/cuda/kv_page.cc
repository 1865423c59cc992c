#include "ops/cuda/kv_page.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "ops/codebook.h"
#include "ops/cuda/page_address.cuh"

namespace winnow::ops::cuda {
namespace {

void arrange_codes(const PageLayout& host, const PageAddress& address, const std::byte* page,
                   std::byte* device_page) {
  const auto put = [device_page](CodePlace place, std::uint32_t code) {
    std::uint32_t word;
    std::memcpy(&word, device_page + place.offset, sizeof(word));
    word |= place_code(code, place.index);
    std::memcpy(device_page + place.offset, &word, sizeof(word));
  };
  std::fill_n(device_page, 2 * address.values(), std::byte{0});
  for (int entry = 0; entry < kPageEntries; ++entry) {
    const std::byte* values =
        page + host.values_offset() + static_cast<std::size_t>(entry) * host.row_bytes();
    for (int d = 0; d < host.head_dim(); ++d) {
      const auto channel = static_cast<std::size_t>(d);
      put(address.key_code(entry, d),
          packed_code(page, channel * kPageEntries + static_cast<std::size_t>(entry)));
      put(address.value_code(entry, d), packed_code(values, channel));
    }
  }
}

void arrange_elements(const PageLayout& host, const PageAddress& address, const std::byte* page,
                      std::byte* device_page) {
  const int bytes = address.code_bits / 8;
  for (int entry = 0; entry < kPageEntries; ++entry) {
    for (int d = 0; d < host.head_dim(); ++d) {
      const std::byte* key = page + (d * kPageEntries + entry) * bytes;
      const std::byte* value = page + host.values_offset() + (entry * host.head_dim() + d) * bytes;
      std::copy_n(key, bytes, device_page + address.key(entry, d));
      std::copy_n(value, bytes, device_page + address.value(entry, d));
    }
  }
}

}  // namespace

DevicePageLayout::DevicePageLayout(EntryFormat format, int head_dim) : host_(format, head_dim) {
  require(format != EntryFormat::f32,
          "cache entries cannot be stored as {} on the device (bf16, fp8, int8 and q4 can)",
          format_name(format));
  constexpr std::array kDims{64, 80, 96, 128};
  require(std::ranges::find(kDims, head_dim) != kDims.end(),
          "head_dim {} is not supported on the device, expected 64, 80, 96 or 128", head_dim);
}

int DevicePageLayout::code_bits() const {
  switch (format()) {
    case EntryFormat::bf16:
      return 16;
    case EntryFormat::q4:
      return 4;
    default:
      return 8;
  }
}

std::size_t DevicePageLayout::page_bytes() const {
  return static_cast<std::size_t>(PageAddress{head_dim(), code_bits()}.page_bytes());
}

void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page) {
  const PageLayout& host = layout.host();
  const PageAddress address{host.head_dim(), layout.code_bits()};
  (host.format() == EntryFormat::q4 ? arrange_codes : arrange_elements)(host, address, page,
                                                                        device_page);
  std::copy(page + host.scales_offset(),
            page + host.scales_offset() + (address.scaled() ? 4 * kPageEntries : 0),
            device_page + 2 * address.values());
}

}  // namespace winnow::ops::cuda
