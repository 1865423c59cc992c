#include "ops/cuda/kv_page.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/cuda/page_address.cuh"

namespace winnow::ops::cuda {
namespace {

// Calls f(host, device, bytes) for the places of all parts of a page.
template <class F>
void each_part(const DevicePageLayout& layout, const F& f) {
  const PageLayout& host = layout.host();
  const auto bytes = static_cast<int>(host.element_bytes());
  const PageAddress address{host.head_dim(), bytes};
  const auto element = [&](std::size_t from, int to) {
    f(from, static_cast<std::size_t>(to), static_cast<std::size_t>(bytes));
  };
  for (int entry = 0; entry < kPageEntries; ++entry) {
    for (int d = 0; d < host.head_dim(); ++d) {
      const auto key = static_cast<std::size_t>((d * kPageEntries + entry) * bytes);
      const auto value = static_cast<std::size_t>((entry * host.head_dim() + d) * bytes);
      element(key, address.key(entry, d));
      element(host.values_offset() + value, address.value(entry, d));
    }
  }
  f(host.scales_offset(), host.scales_offset(), host.page_bytes() - host.scales_offset());
}

}  // namespace

DevicePageLayout::DevicePageLayout(EntryFormat format, int head_dim) : host_(format, head_dim) {
  require(format != EntryFormat::f32,
          "cache entries cannot be stored as {} on the device (bf16, fp8 and int8 can)",
          format_name(format));
  constexpr std::array kDims{64, 80, 96, 128};
  require(std::ranges::find(kDims, head_dim) != kDims.end(),
          "head_dim {} is not supported on the device, expected 64, 80, 96 or 128", head_dim);
}

void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page) {
  each_part(layout, [=](std::size_t host, std::size_t device, std::size_t bytes) {
    std::copy_n(page + host, bytes, device_page + device);
  });
}

void restore_page(const DevicePageLayout& layout, const std::byte* device_page, std::byte* page) {
  each_part(layout, [=](std::size_t host, std::size_t device, std::size_t bytes) {
    std::copy_n(device_page + device, bytes, page + host);
  });
}

}  // namespace winnow::ops::cuda
