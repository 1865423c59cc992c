#include "ops/cuda/kv_page.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/cuda/page_address.cuh"

namespace winnow::ops::cuda {

DevicePageLayout::DevicePageLayout(EntryFormat format, int head_dim) : host_(format, head_dim) {
  require(format != EntryFormat::f32,
          "cache entries cannot be stored as {} on the device (bf16, fp8 and int8 can)",
          format_name(format));
  constexpr std::array kDims{64, 80, 96, 128};
  require(std::ranges::find(kDims, head_dim) != kDims.end(),
          "head_dim {} is not supported on the device, expected 64, 80, 96 or 128", head_dim);
}

void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page) {
  const PageLayout& host = layout.host();
  const auto bytes = static_cast<int>(host.element_bytes());
  const PageAddress address{host.head_dim(), bytes};
  for (int entry = 0; entry < kPageEntries; ++entry) {
    for (int d = 0; d < host.head_dim(); ++d) {
      const std::byte* key = page + (d * kPageEntries + entry) * bytes;
      const std::byte* value = page + host.values_offset() + (entry * host.head_dim() + d) * bytes;
      std::copy_n(key, bytes, device_page + address.key(entry, d));
      std::copy_n(value, bytes, device_page + address.value(entry, d));
    }
  }
  std::copy(page + host.scales_offset(), page + host.page_bytes(),
            device_page + host.scales_offset());
}

}  // namespace winnow::ops::cuda
