// The device's page against the host's, for every head dimension. Needs no device.
#include "ops/cuda/pages/kv_page.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/error.h"
#include "ops/codebook.h"
#include "ops/cpu/attention/attention_testing.h"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr EntryFormat kFormats[] = {EntryFormat::bf16, EntryFormat::f8e4m3, EntryFormat::i8,
                                    EntryFormat::q4};

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

/// A full page of the host.
const std::byte* page_of(const testing::Entries& entries, const PageLayout& layout) {
  const EntrySpan span = entries.span();
  return span.base + span.pages[0] * layout.page_bytes();
}

/// A key's or a value's channel, read at the position that PageAddress gives.
class DevicePage {
 public:
  DevicePage(const DevicePageLayout& layout, const std::vector<std::byte>& page)
      : format_(layout.format()), address_{layout.head_dim(), layout.code_bits()}, page_(page) {}

  [[nodiscard]] float key(int entry, int channel) const {
    return format_ == EntryFormat::q4
               ? level(address_.key_code(entry, channel)) * scale(address_.key_scale(entry))
               : number(address_.key(entry, channel), address_.key_scale(entry));
  }
  [[nodiscard]] float value(int entry, int channel) const {
    return format_ == EntryFormat::q4
               ? level(address_.value_code(entry, channel)) * scale(address_.value_scale(entry))
               : number(address_.value(entry, channel), address_.value_scale(entry));
  }

 private:
  template <class T>
  [[nodiscard]] T at(int offset) const {
    T x;
    std::memcpy(&x, &page_.at(size(offset) + sizeof(T) - 1) - (sizeof(T) - 1), sizeof(T));
    return x;
  }
  [[nodiscard]] float scale(int offset) const { return to_float(at<bf16>(offset)); }
  [[nodiscard]] float level(CodePlace place) const {
    return level_of(code_from(at<std::uint32_t>(place.offset), place.index));
  }
  [[nodiscard]] float number(int offset, int scale_offset) const {
    switch (format_) {
      case EntryFormat::bf16:
        return to_float(at<bf16>(offset));
      case EntryFormat::f8e4m3:
        return to_float(at<f8e4m3>(offset)) * scale(scale_offset);
      default:
        return static_cast<float>(at<std::int8_t>(offset)) * scale(scale_offset);
    }
  }

  EntryFormat format_;
  PageAddress address_;
  const std::vector<std::byte>& page_;
};

TEST(CudaPage, HoldsWhatTheHostsPageHolds) {
  for (const EntryFormat format : kFormats) {
    for (int dim = 8; dim <= kMostHeadDim; dim += 8) {
      SCOPED_TRACE(std::string(format_name(format)) + " " + std::to_string(dim));
      const DevicePageLayout layout(format, dim);
      const testing::Entries entries(layout.host(), kPageEntries, size(dim));
      std::vector<std::byte> page(layout.page_bytes());
      arrange_page(layout, page_of(entries, layout.host()), page.data());
      const DevicePage on_device(layout, page);
      for (int entry = 0; entry < kPageEntries; ++entry) {
        for (int d = 0; d < dim; ++d) {
          ASSERT_EQ(on_device.key(entry, d), entries.key(entry)[size(d)]) << entry << " " << d;
          ASSERT_EQ(on_device.value(entry, d), entries.value(entry)[size(d)]) << entry << " " << d;
        }
      }
      std::vector<std::byte> back(layout.host().page_bytes(), std::byte{0});
      restore_page(layout, page.data(), back.data());
      std::vector<float> key(size(dim));
      std::vector<float> value(size(dim));
      for (int entry = 0; entry < kPageEntries; ++entry) {
        load_entry(layout.host(), back.data(), entry, key, value);
        ASSERT_TRUE(std::ranges::equal(key, entries.key(entry))) << entry;
        ASSERT_TRUE(std::ranges::equal(value, entries.value(entry))) << entry;
      }
    }
  }
}

// No two codes share a position, and all precede the scales.
TEST(CudaPage, GivesEveryCodeAPlaceOfItsOwn) {
  for (int dim = 8; dim <= kMostHeadDim; dim += 8) {
    for (const int bits : {4, 8, 16}) {
      const PageAddress address{dim, bits};
      std::set<std::pair<int, int>> places;
      const auto take = [&](std::pair<int, int> place, int begin, int end) {
        EXPECT_TRUE(places.insert(place).second) << dim << " " << bits;
        EXPECT_GE(place.first, begin);
        EXPECT_LT(place.first, end);
      };
      for (int entry = 0; entry < kPageEntries; ++entry) {
        for (int d = 0; d < dim; ++d) {
          const auto key =
              bits == 4 ? address.key_code(entry, d) : CodePlace{address.key(entry, d), 0};
          const auto value =
              bits == 4 ? address.value_code(entry, d) : CodePlace{address.value(entry, d), 0};
          take({key.offset, key.index}, 0, address.values());
          take({value.offset, value.index}, address.values(), 2 * address.values());
        }
      }
      EXPECT_LE(2 * address.values() + (bits <= 8 ? 4 * kPageEntries : 0), address.page_bytes());
    }
  }
}

TEST(CudaPage, IsNoLargerThanItWas) {
  // Speed and memory of the shapes with specialised kernels depend on these sizes.
  EXPECT_EQ(DevicePageLayout(EntryFormat::bf16, 128).page_bytes(), 8192U);
  EXPECT_EQ(DevicePageLayout(EntryFormat::f8e4m3, 64).page_bytes(), 2112U);
  EXPECT_EQ(DevicePageLayout(EntryFormat::q4, 128).page_bytes(), 2112U);
}

}  // namespace
}  // namespace winnow::ops::cuda
