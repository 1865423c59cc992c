// Decode attention on the device: one query token per row over the row's pages.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "ops/cuda/kv_page.h"

namespace winnow::ops::cuda {

/// The entries of all rows (sequences x KV heads), in device memory. Row r sees archive_counts[r]
/// entries on the pages archive_pages[r * archive_stride ...] and window_counts[r] on its window
/// pages, in slots 0, 1, 2 ... of each list. Slots past a count may hold anything.
struct DecodeEntries {
  const std::byte* pool = nullptr;  // page p lies at pool + p * page_bytes
  const std::uint32_t* archive_pages = nullptr;
  const std::int32_t* archive_counts = nullptr;
  std::size_t archive_stride = 0;
  const std::uint32_t* window_pages = nullptr;
  const std::int32_t* window_counts = nullptr;
  std::size_t window_stride = 0;
};

/// Decode attention of a step. The rows' pages, one row after another, are cut into equal runs, one
/// per block, so that heads of very different lengths cost what their entries cost. The cut is made
/// on the device from the counts there, once per step, and serves every call with these counts.
class DecodePlan {
 public:
  /// For up to `rows` rows of `group` query heads, 1 to 8. Holds the scratch of the merge.
  DecodePlan(const DevicePageLayout& layout, int group, int rows);

  /// Reads the counts of rows [0, rows).
  void make(const DecodeEntries& entries, int rows, cudaStream_t stream);

  /// out = softmax(scale * query . keys) values for each row of the plan. query and out
  /// [rows, group, head_dim]. A row without entries gives zeros. Reads the live entries once; sums
  /// and exponentials are in float, and operands keep twice 16 bits (high and low part), so that
  /// only the rounding of the entries themselves shows.
  void attend(const DecodeEntries& entries, float scale, const float* query, float* out,
              cudaStream_t stream) const;

  /// What the kernels see of a plan.
  struct View {
    int rows;
    int workers;               // blocks
    std::int32_t* row_begin;   // [rows + 1] pages before each row
    std::int32_t* pages_each;  // [1] pages per worker
    int4* runs;             // [workers] first row, page of it, pages in all, pages before the row
    std::int32_t* arrived;  // [rows] parts of a row that are done
    float* partial_out;     // [workers + rows, group, head_dim]
    float2* partial_sums;   // [workers + rows, group]: largest score, sum of exponentials
  };
  [[nodiscard]] View view() const;

 private:
  DevicePageLayout layout_;
  int group_;
  int most_rows_;
  int rows_ = 0;
  int workers_;
  winnow::cuda::DeviceBuffer<std::int32_t> row_begin_;
  winnow::cuda::DeviceBuffer<std::int32_t> pages_each_;
  winnow::cuda::DeviceBuffer<int4> runs_;
  winnow::cuda::DeviceBuffer<std::int32_t> arrived_;
  winnow::cuda::DeviceBuffer<float> partial_out_;
  winnow::cuda::DeviceBuffer<float2> partial_sums_;
};

}  // namespace winnow::ops::cuda
