// The tiles of a processor (AMX) as arrays: its intrinsics, redefined for what follows in a file.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace winnow::testing {

/// A thread's eight tiles of 16 rows of 64 bytes.
class EmulatedTiles {
 public:
  static EmulatedTiles& own() {
    static thread_local EmulatedTiles tiles;
    return tiles;
  }

  /// `shapes`: 64 bytes, as the processor is told, which takes no others, either.
  void configure(const void* shapes) {
    constexpr std::size_t kRowsAt = 48;
    std::memcpy(rows_.data(), static_cast<const std::byte*>(shapes) + kRowsAt, rows_.size());
    for (const std::uint8_t rows : rows_) {
      if (rows < 1 || rows > kRows) {
        std::abort();
      }
    }
  }

  void clear(int tile) { at(tile) = {}; }

  void load(int tile, const void* from, std::size_t stride) {
    clear(tile);
    for (std::size_t row = 0; row < rows(tile); ++row) {
      std::memcpy(at(tile)[row].data(), static_cast<const std::byte*>(from) + row * stride,
                  kRowBytes);
    }
  }

  void store(int tile, void* to, std::size_t stride) {
    for (std::size_t row = 0; row < rows(tile); ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride, at(tile)[row].data(), kRowBytes);
    }
  }

  /// sums [m][n] += the sum over k of left [m][k] * right [k / 2][n][k % 2]. As a CPU, which
  /// faults, it takes no shapes that do not fit each other.
  void add_products(int sums, int left, int right) {
    if (rows(sums) != rows(left) || rows(right) != kRows) {
      std::abort();
    }
    for (std::size_t m = 0; m < rows(sums); ++m) {
      for (std::size_t n = 0; n < kRows; ++n) {
        float sum = 0.0F;
        std::memcpy(&sum, &at(sums)[m][n * sizeof(sum)], sizeof(sum));
        for (std::size_t k = 0; k < 2 * kRows; ++k) {
          sum += number(left, m, k) * number(right, k / 2, 2 * n + k % 2);
        }
        std::memcpy(&at(sums)[m][n * sizeof(sum)], &sum, sizeof(sum));
      }
    }
  }

 private:
  static constexpr std::size_t kRows = 16;
  static constexpr std::size_t kRowBytes = 64;
  using Tile = std::array<std::array<std::byte, kRowBytes>, kRows>;

  Tile& at(int tile) { return tiles_.at(static_cast<std::size_t>(tile)); }

  std::size_t rows(int tile) { return rows_.at(static_cast<std::size_t>(tile)); }

  /// The bf16 `index` of a row.
  float number(int tile, std::size_t row, std::size_t index) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, &at(tile)[row][index * sizeof(bits)], sizeof(bits));
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

  std::array<Tile, 8> tiles_{};
  std::array<std::uint8_t, 8> rows_{};
};

}  // namespace winnow::testing

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes) ::winnow::testing::EmulatedTiles::own().configure(shapes)
#define _tile_release() static_cast<void>(0)
#define _tile_zero(tile) ::winnow::testing::EmulatedTiles::own().clear(tile)
#define _tile_loadd(tile, from, stride) \
  ::winnow::testing::EmulatedTiles::own().load(tile, from, stride)
#define _tile_stream_loadd(tile, from, stride) _tile_loadd(tile, from, stride)
#define _tile_stored(tile, to, stride) \
  ::winnow::testing::EmulatedTiles::own().store(tile, to, stride)
#define _tile_dpbf16ps(sums, left, right) \
  ::winnow::testing::EmulatedTiles::own().add_products(sums, left, right)
