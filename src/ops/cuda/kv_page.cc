#include "ops/cuda/kv_page.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace winnow::ops::cuda {
namespace {

// Where channel d of an entry lies among the values of a device page.
std::size_t value_index(std::size_t dim, std::size_t entry, std::size_t d) {
  const std::size_t eighth = dim / 8;
  const std::size_t half = entry / 8;
  const std::size_t pair = entry % 8 / 2;
  const std::size_t chunk = (half * 8 + d / eighth) * 4 + pair;
  return (chunk * eighth + d % eighth) * 2 + entry % 2;
}

}  // namespace

DevicePageLayout::DevicePageLayout(DType format, int head_dim) : host_(format, head_dim) {
  require(format != DType::f32,
          "cache entries cannot be stored as {} on the device (bf16, fp8 and int8 can)",
          dtype_name(format));
  constexpr std::array kDims{64, 80, 96, 128};
  require(std::ranges::find(kDims, head_dim) != kDims.end(),
          "head_dim {} is not supported on the device, expected 64, 80, 96 or 128", head_dim);
}

void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page) {
  const PageLayout& host = layout.host();
  const std::size_t bytes = host.element_bytes();
  const auto dim = static_cast<std::size_t>(host.head_dim());
  for (std::size_t entry = 0; entry < kPageEntries; ++entry) {
    for (std::size_t d = 0; d < dim; ++d) {
      std::copy_n(page + (d * kPageEntries + entry) * bytes, bytes,
                  device_page + (entry * dim + d) * bytes);
      std::copy_n(page + host.values_offset() + (entry * dim + d) * bytes, bytes,
                  device_page + host.values_offset() + value_index(dim, entry, d) * bytes);
    }
  }
  std::copy(page + host.scales_offset(), page + host.page_bytes(),
            device_page + host.scales_offset());
}

}  // namespace winnow::ops::cuda
