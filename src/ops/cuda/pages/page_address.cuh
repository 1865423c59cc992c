// Positions of an entry's parts in a device page, for all kernels that write or read entries.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/pages/code_word.h"
#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// Byte offsets into a page with DevicePageLayout's layout (kv_page.h). If both members are known
/// at compile time every function folds to a few instructions.
struct PageAddress {
  int head_dim;
  int code_bits;  // 8 and 4: the page ends with scales

  [[nodiscard]] __host__ __device__ constexpr int key(int entry, int channel) const {
    return (entry * head_dim + channel) * code_bits / 8;
  }
  /// The channels of an eighth (head_dim / 8) are two elements apart.
  [[nodiscard]] __host__ __device__ constexpr int value(int entry, int channel) const {
    const int eighth = head_dim / 8;
    return values() + ((value_chunk(entry, channel) * eighth + channel % eighth) * 2 + entry % 2) *
                          code_bits / 8;
  }
  [[nodiscard]] __host__ __device__ constexpr int key_scale(int entry) const {
    return 2 * values() + 2 * entry;
  }
  [[nodiscard]] __host__ __device__ constexpr int value_scale(int entry) const {
    return key_scale(kPageEntries + entry);
  }

  /// The same for 4-bit codes: a lane's words hold a quarter of a key's channels, or an eighth of
  /// the channels of a pair of values, whose codes alternate.
  [[nodiscard]] __host__ __device__ constexpr CodePlace key_code(int entry, int channel) const {
    const int within = channel % (head_dim / 4);
    return {((entry * 4 + channel / (head_dim / 4)) * lane_words() + within / 8) * 4, within % 8};
  }
  [[nodiscard]] __host__ __device__ constexpr CodePlace value_code(int entry, int channel) const {
    const int within = channel % (head_dim / 8);
    return {values() + (value_chunk(entry, channel) * lane_words() + within / 4) * 4,
            within % 4 * 2 + entry % 2};
  }

  /// 32-bit words that a lane reads of half a page's keys or values.
  [[nodiscard]] __host__ __device__ constexpr int lane_words() const {
    return (head_dim / 4 * code_bits + 31) / 32;
  }
  /// The offset of the values; the scales' is twice as large.
  [[nodiscard]] __host__ __device__ constexpr int values() const {
    return 2 * 32 * lane_words() * 4;
  }
  [[nodiscard]] __host__ __device__ constexpr bool scaled() const { return code_bits <= 8; }
  [[nodiscard]] __host__ __device__ constexpr int page_bytes() const {
    const int scales = scaled() ? 4 * kPageEntries : 0;
    return (2 * values() + scales + 63) / 64 * 64;
  }

 private:
  // A lane's chunk of the values.
  [[nodiscard]] __host__ __device__ constexpr int value_chunk(int entry, int channel) const {
    return (entry / 8 * 8 + channel / (head_dim / 8)) * 4 + entry % 8 / 2;
  }
};

}  // namespace winnow::ops::cuda
