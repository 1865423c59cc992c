// Shared by the files that use a CPU's tiles (AMX).
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace winnow::ops::cpu {

inline constexpr std::size_t kTile = 16;   // rows of a tile, and floats or pairs of bf16 in a row
inline constexpr std::size_t kDepth = 32;  // bf16 in a row
inline constexpr std::size_t kTileBytes = 1024;
inline constexpr std::size_t kCacheLine = 64;

/// The processor's tile configuration; by default all tiles have full size.
struct alignas(kCacheLine) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {kTile, kTile, kTile, kTile, kTile, kTile, kTile, kTile};
};
static_assert(sizeof(TileShapes) == kCacheLine);

/// While it exists, its thread's tiles are configured.
class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) {
    asm volatile("" : : "m"(shapes));  // GCC assumes that _tile_loadconfig() reads 8 bytes
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES
