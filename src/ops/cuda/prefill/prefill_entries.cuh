// Eight channels of two neighbouring entries, from a page or from the band, in the format of the
// attention kernels: 16-bit numbers.
#pragma once

#include "ops/cuda/pages/kv_codes.cuh"
#include "ops/cuda/prefill/page_codes.cuh"
#include "ops/cuda/prefill/prefill_attention.h"

namespace winnow::ops::cuda {

/// 32-bit words that eight codes take.
template <class Codes>
constexpr int kEightWords = kCodeBits<Codes> / 4;

/// Eight codes of an entry times its scale.
template <class Codes>
__device__ uint4 to_16_bits(const std::uint32_t (&codes)[kEightWords<Codes>], float scale) {
  std::uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = Codes::pair(codes, i);
    if constexpr (Codes::kScaled) {
      typename Codes::Pair pair;
      memcpy(&pair, &x[i], sizeof(pair));
      const float2 code = unpack(pair);
      x[i] = bits_of(Codes::round(code.x * scale, code.y * scale));
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

/// Two neighbouring entries' codes of eight channels, and the entries' scales.
template <class Codes>
struct EntryPair {
  std::uint32_t codes[2][kEightWords<Codes>];
  std::uint32_t scales[2] = {};  // bf16

  __device__ uint4 to_16_bits(int entry) const {
    return cuda::to_16_bits<Codes>(codes[entry], __uint_as_float(scales[entry] << 16));
  }
  __device__ void load_scales(const std::byte* first) {
    if constexpr (Codes::kScaled) {
#pragma unroll
      for (int entry = 0; entry < 2; ++entry) {
        scales[entry] = __ldg(reinterpret_cast<const std::uint16_t*>(first) + entry);
      }
    }
  }
};

/// A thread's part of a page's worth of entries.
struct Piece {
  int part;  // 0: keys, 1: values
  int pair;  // of entries
  int c;     // eight channels
};

template <class Codes, int D>
__device__ EntryPair<Codes> from_page(const std::byte* page, const Piece& piece) {
  constexpr PageAddress kAddress{D, kCodeBits<Codes>};
  EntryPair<Codes> x;
  if (piece.part == 0) {
    load_page_keys<D, kCodeBits<Codes>>(page, 2 * piece.pair, 8 * piece.c, x.codes[0]);
    load_page_keys<D, kCodeBits<Codes>>(page, 2 * piece.pair + 1, 8 * piece.c, x.codes[1]);
    x.load_scales(page + kAddress.key_scale(2 * piece.pair));
  } else {
    load_page_values<D, kCodeBits<Codes>>(page, piece.pair, 8 * piece.c, x.codes);
    x.load_scales(page + kAddress.value_scale(2 * piece.pair));
  }
  return x;
}

/// Entries `first` + 2 pair ... of the band. Entries that do not exist are not read.
template <class Codes, int D>
__device__ EntryPair<Codes> from_band(const PrefillChunk& chunk, int head, int first,
                                      const Piece& piece) {
  const std::byte* band = piece.part == 0 ? chunk.band_keys : chunk.band_values;
  const auto stride = static_cast<std::size_t>(chunk.band_stride);
  const int last = chunk.lead + chunk.tokens - 1;
  EntryPair<Codes> x;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int entry = min(first + 2 * piece.pair + i, last);
    load_row_codes(band + ((head * stride + entry) * D + 8 * piece.c) * kCodeBits<Codes> / 8,
                   x.codes[i]);
    if constexpr (Codes::kScaled) {
      x.scales[i] = __ldg(reinterpret_cast<const std::uint16_t*>(chunk.band_scales) +
                          (head * 2 + piece.part) * stride + entry);
    }
  }
  return x;
}

/// The same for one entry of a band in 16 bits.
template <int D>
__device__ uint4 from_wide_band(const PrefillChunk& chunk, int head, int entry,
                                const Piece& piece) {
  const std::byte* band = piece.part == 0 ? chunk.band_keys : chunk.band_values;
  const std::size_t row = static_cast<std::size_t>(head) * chunk.band_stride + entry;
  return __ldg(reinterpret_cast<const uint4*>(band + (row * D + 8 * piece.c) * 2));
}

}  // namespace winnow::ops::cuda
