// Entries of the cache as floats in shared memory: from pages, and from rows of codes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::ops::cuda {

/// Bits of a code of a format.
template <class Format>
inline constexpr int kFormatBits =
    8 * static_cast<int>(sizeof(typename Format::Code)) / Format::kChannels;

/// The value, without its scale, of a code in the lower bits of `code`.
template <class Format>
__device__ float decode_bits(std::uint32_t code) {
  using Code = typename Format::Code;
  if constexpr (kFormatBits<Format> == 4) {
    return Format::dequantize(Code{static_cast<std::uint8_t>(code)}, 0);
  } else if constexpr (kFormatBits<Format> == 8) {
    const auto bits = static_cast<std::uint8_t>(code);
    return Format::dequantize(*reinterpret_cast<const Code*>(&bits), 0);
  } else {
    const auto bits = static_cast<std::uint16_t>(code);
    return Format::dequantize(*reinterpret_cast<const Code*>(&bits), 0);
  }
}

inline __device__ std::uint32_t word_at(const std::byte* from, int index) {
  return reinterpret_cast<const std::uint32_t*>(from)[index];
}
template <class Format>
__device__ float scale_at(const std::byte* from) {
  return Format::kLargest > 0.0F ? __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from))
                                 : 1.0F;
}

/// The contents of a page's 32-bit words, the inverse of PageAddress: f(entry, channel, code) for
/// each code of word `index` of the keys or of the values.
template <class Format>
class PageWords {
 public:
  static constexpr int kBits = kFormatBits<Format>;
  static constexpr int kCodes = 32 / kBits;

  __device__ explicit PageWords(const PageAddress& address) : address_(address) {}

  /// Words of the keys of a page, and of its values.
  [[nodiscard]] __device__ int count() const {
    return kBits == 4 ? kLanes * address_.lane_words() : kPageEntries * address_.head_dim / kCodes;
  }

  template <class F>
  __device__ void keys(std::uint32_t word, int index, const F& f) const {
    const int dim = address_.head_dim;
    if constexpr (kBits == 4) {
      const int lane = index / address_.lane_words();
      const int first = index % address_.lane_words() * kCodes;
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        if (first + i < dim / 4) {
          f(lane / 4, lane % 4 * (dim / 4) + first + i, code_from(word, i));
        }
      }
    } else {
      const int first = index * kCodes;
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        f(first / dim, first % dim + i, word >> (i * kBits));
      }
    }
  }

  template <class F>
  __device__ void values(std::uint32_t word, int index, const F& f) const {
    const int eighth = address_.head_dim / 8;
#pragma unroll
    for (int i = 0; i < kCodes; ++i) {
      int lane = 0;
      int within = 0;
      if constexpr (kBits == 4) {
        lane = index / address_.lane_words();
        within = index % address_.lane_words() * (kCodes / 2) + i / 2;
      } else {
        const int pair = (index * kCodes + i) / 2;
        lane = pair / eighth;
        within = pair % eighth;
      }
      if (within < eighth) {
        const int entry = lane / 32 * 8 + lane % 4 * 2 + i % 2;
        const std::uint32_t code = kBits == 4 ? code_from(word, i) : word >> (i * kBits);
        f(entry, lane / 4 % 8 * eighth + within, code);
      }
    }
  }

 private:
  static constexpr int kLanes = 64;  // of both halves of a page

  PageAddress address_;
};

/// All threads of a block load the first `entries` entries of a page into a tile, then zeros.
template <class Format>
__device__ void load_page(const EntryTile& tile, const std::byte* page, int entries) {
  const PageAddress address{tile.head_dim, kFormatBits<Format>};
  const PageWords<Format> words(address);
  const int stride = tile.stride();
  for (int i = static_cast<int>(threadIdx.x); i < words.count();
       i += static_cast<int>(blockDim.x)) {
    words.keys(word_at(page, i), i, [&](int entry, int d, std::uint32_t code) {
      tile.keys[entry * stride + d] =
          entry < entries
              ? decode_bits<Format>(code) * scale_at<Format>(page + address.key_scale(entry))
              : 0.0F;
    });
    words.values(word_at(page + address.values(), i), i, [&](int entry, int d, std::uint32_t code) {
      tile.values[entry * stride + d] =
          entry < entries
              ? decode_bits<Format>(code) * scale_at<Format>(page + address.value_scale(entry))
              : 0.0F;
    });
  }
}

/// Keys or values outside of pages: codes [rows][head_dim], 4-bit codes two to a byte
/// (DevicePageLayout::row_bytes), and their scales [rows], if the format has any.
struct CodeRows {
  const std::byte* codes;
  const std::byte* scales;
};

/// All threads load the first `entries` rows into a tile's keys or values, then zeros.
template <class Format>
__device__ void load_code_rows(float* to, int head_dim, const CodeRows& rows, int entries) {
  constexpr int kBits = kFormatBits<Format>;
  constexpr int kCodes = 32 / kBits;
  const int words = head_dim / kCodes;  // per row
  for (int i = static_cast<int>(threadIdx.x); i < kEntryTile * words;
       i += static_cast<int>(blockDim.x)) {
    const int entry = i / words;
    float* at = to + entry * tile_stride(head_dim) + i % words * kCodes;
    std::uint32_t word = 0;
    float scale = 0.0F;
    if (entry < entries) {
      word = word_at(rows.codes, i);
      scale = scale_at<Format>(rows.scales + entry * sizeof(__nv_bfloat16));
    }
#pragma unroll
    for (int k = 0; k < kCodes; ++k) {
      at[k] = entry < entries
                  ? decode_bits<Format>(word >> (k * kBits) & (kBits == 4 ? 15U : ~0U)) * scale
                  : 0.0F;
    }
  }
}

/// The same for rows of 16-bit numbers [rows][head_dim].
template <class Number>
__device__ void load_number_rows(float* to, int head_dim, const std::byte* rows, int entries) {
  for (int i = static_cast<int>(threadIdx.x); i < kEntryTile * head_dim;
       i += static_cast<int>(blockDim.x)) {
    const int entry = i / head_dim;
    to[entry * tile_stride(head_dim) + i % head_dim] =
        entry < entries ? static_cast<float>(reinterpret_cast<const Number*>(rows)[i]) : 0.0F;
  }
}

}  // namespace winnow::ops::cuda
