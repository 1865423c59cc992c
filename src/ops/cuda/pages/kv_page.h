// The layout of pages on the device.
#pragma once

#include <cstddef>

#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// The largest head dimension of entries on the device.
inline constexpr int kMostHeadDim = 512;

/// The most of what has specialised kernels.
inline constexpr int kMostOwnGroup = 8;
inline constexpr int kMostOwnHeadDim = 128;

/// Whether this head dimension and group size have specialised kernels (kernel_shape.cuh). General
/// kernels support all others.
constexpr bool has_own_kernels(int head_dim, int group) {
  return group <= kMostOwnGroup &&
         (head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128);
}

/// Layout of a page of kPageEntries entries of one KV head in device memory (bf16, f8e4m3, i8 or
/// q4). In this order, each part contiguous, E = bytes of an element:
///   keys    [kPageEntries][head_dim]
///   values  [2][8][4][head_dim / 8][2]        half of the entries, eighth of the channels, pair of
///                                             neighbouring entries, channel, entry of the pair
///   scales  [2][kPageEntries] bf16            of keys, then of values; not with bf16
/// So consecutive lanes of a warp read their operands of the matrix instructions
/// (warp_attention.cuh), 16, 8 or 4 bytes at a time. The room for keys, and for values, is a whole
/// number of 32-bit words per lane: of 8-bit codes, unused bytes follow unless head_dim is a
/// multiple of 16. Codes and scales equal those of the host's PageLayout: the same rounding. In q4
/// the elements of a lane's chunk fill words of eight codes (code_word.h); the last word is partly
/// used unless head_dim is a multiple of 32. So pages may be larger than the host's. PageAddress
/// (page_address.cuh) is this layout in code.
class DevicePageLayout {
 public:
  DevicePageLayout() = default;
  /// head_dim must be a multiple of 8 up to kMostHeadDim.
  DevicePageLayout(EntryFormat format, int head_dim);

  [[nodiscard]] EntryFormat format() const { return host_.format(); }
  [[nodiscard]] int head_dim() const { return host_.head_dim(); }
  [[nodiscard]] std::size_t page_bytes() const;
  [[nodiscard]] std::size_t entry_bytes() const { return page_bytes() / kPageEntries; }
  /// Bytes of a key or a value outside of pages, codes in order; q4 has two codes to a byte, the
  /// even channel's in the lower half.
  [[nodiscard]] std::size_t row_bytes() const {
    return static_cast<std::size_t>(head_dim() * code_bits() / 8);
  }
  [[nodiscard]] int code_bits() const;
  /// The page of the same format on the host.
  [[nodiscard]] const PageLayout& host() const { return host_; }

 private:
  PageLayout host_;
};

/// `page` of the host, re-arranged for the device into `device_page` (host memory).
void arrange_page(const DevicePageLayout& layout, const std::byte* page, std::byte* device_page);

/// The inverse of arrange_page.
void restore_page(const DevicePageLayout& layout, const std::byte* device_page, std::byte* page);

}  // namespace winnow::ops::cuda
