// Where the parts of an entry lie in a device page: what kernels that write or read entries share.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// Byte offsets into a page laid out as DevicePageLayout says (kv_page.h). With both members known
/// at compile time every function folds to a few instructions.
struct PageAddress {
  int head_dim;
  int element_bytes;  // 1: the page ends with scales

  [[nodiscard]] __host__ __device__ constexpr int key(int entry, int channel) const {
    return (entry * head_dim + channel) * element_bytes;
  }
  /// The channels of an eighth (head_dim / 8) follow one another at a distance of two elements.
  [[nodiscard]] __host__ __device__ constexpr int value(int entry, int channel) const {
    const int eighth = head_dim / 8;
    const int half = entry / 8;
    const int pair = entry % 8 / 2;
    const int chunk = (half * 8 + channel / eighth) * 4 + pair;
    return values() + ((chunk * eighth + channel % eighth) * 2 + entry % 2) * element_bytes;
  }
  [[nodiscard]] __host__ __device__ constexpr int key_scale(int entry) const {
    return 2 * values() + 2 * entry;
  }
  [[nodiscard]] __host__ __device__ constexpr int value_scale(int entry) const {
    return key_scale(kPageEntries + entry);
  }

  /// Where the values begin; the scales begin twice as far in.
  [[nodiscard]] __host__ __device__ constexpr int values() const {
    return kPageEntries * head_dim * element_bytes;
  }
  [[nodiscard]] __host__ __device__ constexpr bool scaled() const { return element_bytes == 1; }
  [[nodiscard]] __host__ __device__ constexpr int page_bytes() const {
    const int scales = scaled() ? 4 * kPageEntries : 0;
    return (2 * values() + scales + 63) / 64 * 64;
  }
};

}  // namespace winnow::ops::cuda
