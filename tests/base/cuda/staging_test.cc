// Copies to the host through a little device memory.
#include "base/cuda/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cuda/on_device.h"

namespace winnow::cuda {
namespace {

class StagingTest : public winnow::testing::OnDevice<::testing::Test> {};

bool holds_only(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == std::byte(value); });
}

// Ranges of all sizes, many times as much in all as there is memory, and one that stays taken.
TEST_F(StagingTest, DeliversEverything) {
  constexpr std::size_t kSize = std::size_t{1} << 16;
  constexpr int kCopies = 200;
  const Stream stream;
  const PinnedBuffer<std::byte> target(kCopies * kSize / 4);
  std::ranges::fill(target.span(), std::byte{0xEE});
  Staging staging(kSize);
  std::byte* const kept = staging.take(kSize / 8);
  check(cudaMemsetAsync(kept, 0x11, kSize / 8, stream.get()), "fill");
  const auto bytes_of = [](int i) { return 1 + static_cast<std::size_t>(i) * 7919 % (kSize / 4); };
  const auto place_of = [&](int i) {
    return target.span().subspan(static_cast<std::size_t>(i) * (kSize / 4), kSize / 4);
  };
  for (int i = 0; i < kCopies; ++i) {
    std::byte* const from = staging.take(bytes_of(i));
    check(cudaMemsetAsync(from, i % 100, bytes_of(i), stream.get()), "fill");
    staging.send(from, bytes_of(i), place_of(i).data(), stream.get());
    EXPECT_EQ(staging.sent(), i + 1);
    if (i % 50 == 49) {
      staging.wait(i);
      EXPECT_TRUE(holds_only(place_of(i - 1).first(bytes_of(i - 1)), (i - 1) % 100)) << i;
    }
  }
  staging.wait(staging.sent());
  for (int i = 0; i < kCopies; ++i) {
    const auto place = place_of(i);
    EXPECT_TRUE(holds_only(place.first(bytes_of(i)), i % 100)) << i;
    EXPECT_TRUE(holds_only(place.subspan(bytes_of(i)), 0xEE)) << i;
  }
  staging.send(kept, kSize / 8, target.data(), stream.get());
  staging.wait(kCopies + 1);
  EXPECT_TRUE(holds_only(target.span().first(kSize / 8), 0x11));
}

}  // namespace
}  // namespace winnow::cuda
