// The device's cache as decode attention reads it.
#pragma once

#include "kvcache/cuda/device_cache.h"
#include "ops/cuda/decode_attention.h"

namespace winnow::model::cuda {

/// The entries of `layer` for a step of the sequences in `slots` (device memory).
inline ops::cuda::DecodeEntries decode_entries(const kvcache::cuda::DeviceCache& cache, int layer,
                                               const std::int32_t* slots) {
  const auto& view = cache.view();
  const std::size_t row = view.row(layer, 0, 0);
  return {.pool = view.pool,
          .archive_pages = view.archive_pages + row * view.archive_stride,
          .archive_stride = view.archive_stride,
          .archive_counts = view.archive_counts + row,
          .window_pages = view.window_pages + row * view.window_stride,
          .window_stride = view.window_stride,
          .lengths = view.lengths,
          .window = view.ring - 1,
          .slots = slots,
          .kv_heads = view.kv_heads};
}

}  // namespace winnow::model::cuda
