#include "ops/cuda/linear/small_batch_gemm.h"

#include <algorithm>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/hopper.h"
#include "ops/cuda/linear/small_batch_gemm_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kLeastSharedMemory =
    kSmallBatchRingBytes + 4 * 1024;  // barriers, and alignment of stages
constexpr int kNarrow = 32;           // rows

int computed_rows(int rows) {
  return rows <= kNarrow ? kNarrow : kMostSmallBatchRows;
}

int divided(int x, int y) {
  return (x + y - 1) / y;
}

std::size_t packed_size(int rows, int cols) {
  return static_cast<std::size_t>(rows) *
         static_cast<std::size_t>(divided(cols, kMostStageColumns) * kMostStageColumns);
}

// Formats with group scales need longer to make operands, so that more parts pay off.
int most_parts(DeviceWeightFormat format) {
  const bool scaled = format == DeviceWeightFormat::int8 || format == DeviceWeightFormat::int4;
  return scaled ? kMostSmallBatchParts : kMostSmallBatchParts / 2;
}

int groups_of(const DeviceWeightView& weight) {
  return divided(weight.tiles, kSmallBatchTiles);
}

int stages_of(const DeviceWeightView& weight) {
  return divided(weight.cols, stage_columns(weight.format));
}

}  // namespace

bool has_small_batch_gemm() {
  return has_wgmma() && winnow::cuda::most_shared_memory() >= kLeastSharedMemory;
}

int PackedRows::padded() const {
  return computed_rows(rows);
}

PackedMemory::PackedMemory(DeviceWeightFormat format, int cols)
    : format_(format), cols_(cols), wide_(packed_size(kNarrow, cols)) {
  memory_ = winnow::cuda::DeviceBuffer<bf16>(wide_ + packed_size(kMostSmallBatchRows, cols));
  memory_.fill(0);
  winnow::cuda::check(cudaDeviceSynchronize(), "clear packed rows");
}

PackedRows PackedMemory::rows(int count) const {
  return {format_, count, cols_, memory_.data() + (count <= kNarrow ? 0 : wide_)};
}

// The bytes that a multiprocessor moves: its share of the weights, plus its waiting time in bytes,
// and its share of the parts, which are written and read.
int small_batch_parts(const DeviceWeightView& weight, int rows) {
  const int blocks = winnow::cuda::multiprocessor_count();
  const int groups = groups_of(weight);
  const int stages = stages_of(weight);
  const DeviceWeightLayout layout{weight.format, weight.rows, weight.cols, weight.paired};
  const double stage_bytes = static_cast<double>(layout.bytes()) / (double(groups) * stages);
  const double part_bytes = 2.0 * sizeof(float) * rows * weight.rows / blocks;
  int best = 1;
  double least = 0.0;
  for (int parts = 1; parts <= std::min(most_parts(weight.format), stages); ++parts) {
    const double waves = divided(groups * parts, blocks);
    const double cost = waves * divided(stages, parts) * stage_bytes + parts * part_bytes;
    if (parts == 1 || cost < least) {
      best = parts;
      least = cost;
    }
  }
  return best;
}

SmallBatchProduct small_batch_gemm(const DeviceWeightView& weight, const PackedRows& x, int parts,
                                   float* sums, cudaStream_t stream) {
  require(x.rows > 0 && x.rows <= kMostSmallBatchRows, "a product of a batch of {} rows: 1 to {}",
          x.rows, kMostSmallBatchRows);
  require(x.cols == weight.cols && x.format == weight.format,
          "rows packed for {} columns of {} and a weight of {} of {}", x.cols,
          format_name(x.format), weight.cols, format_name(weight.format));
  const int stages = stages_of(weight);
  require(parts > 0 && parts <= stages, "{} parts of a product of {} stages", parts, stages);
  launch_small_batch_gemm({.weight = weight,
                           .x = x.data,
                           .sums = sums,
                           .rows = x.rows,
                           .work = {parts, stages, groups_of(weight) * parts}},
                          x.padded(), stream);
  return {sums, parts, x.rows, weight.rows};
}

void add_and_norm(float* hidden, const SmallBatchProduct& product, const float* bias,
                  const float* norm_weight, float eps, const PackedRows& normed,
                  cudaStream_t stream) {
  require(normed.cols <= kMostNormColumns, "a residual stream of {} columns: at most {}",
          normed.cols, kMostNormColumns);
  launch_add_and_norm(hidden, product, bias, norm_weight, eps, normed, stream);
}

}  // namespace winnow::ops::cuda
