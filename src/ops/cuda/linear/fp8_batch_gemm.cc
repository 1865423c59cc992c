#include "ops/cuda/linear/fp8_batch_gemm.h"

#include <algorithm>

#include "base/cuda/device.h"
#include "base/error.h"
#include "ops/cuda/hopper.h"
#include "ops/cuda/linear/fp8_batch_gemm_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kWide = 16;  // the copy engine requires rows of a multiple of this

int divided(int x, int y) {
  return (x + y - 1) / y;
}

// The rows that a kernel computes: a multiple of 64, at least 128.
int computed_rows(int rows) {
  return std::max(128, divided(rows, 64) * 64);
}

// As many parts as keep all multiprocessors busy, if there are fewer groups of tiles than those.
BatchUnits units_of(const DeviceWeightView& weight) {
  const int groups = divided(weight.tiles, kSmallBatchTiles);
  const int stages = divided(weight.cols, kFp8StageColumns);
  const int most = std::min(kMostSmallBatchParts, stages);
  const int parts = std::clamp(winnow::cuda::multiprocessor_count() / groups, 1, most);
  return {parts, stages, groups * parts};
}

// Codes in the copy engine's terms: pairs of codes are 16-bit numbers to it.
CUtensorMap map_of(const Fp8Rows& x, int rows, int cols) {
  const auto pairs = static_cast<std::size_t>(cols) / sizeof(bf16);
  return slab_map(
      {reinterpret_cast<const bf16*>(x.codes), static_cast<std::size_t>(rows), pairs, pairs},
      computed_rows(rows));
}

void multiply(const BatchOutput& out, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
              float* scratch, cudaStream_t stream) {
  require(rows > 0 && rows <= kMostFp8BatchRows, "a product in fp8 of a batch of {} rows: 1 to {}",
          rows, kMostFp8BatchRows);
  require(weight.format == DeviceWeightFormat::fp8, "a product in fp8 with weights in {}",
          format_name(weight.format));
  require(weight.rows % kWide == 0 && weight.cols % kWide == 0,
          "a product in fp8 with a [{}, {}] weight: both must be multiples of {}", weight.rows,
          weight.cols, kWide);
  const Fp8BatchArguments arguments{.weight = weight,
                                    .scales = x.scales,
                                    .sums = scratch,
                                    .out = out,
                                    .rows = rows,
                                    .work = units_of(weight)};
  launch_fp8_batch_gemm(arguments, map_of(x, rows, weight.cols), computed_rows(rows), stream);
  if (arguments.work.parts > 1) {
    launch_add_parts(arguments, stream);
  }
}

}  // namespace

// With several parts there is at most one unit per multiprocessor.
std::size_t fp8_batch_scratch(int rows) {
  return static_cast<std::size_t>(winnow::cuda::multiprocessor_count()) * kSmallBatchTiles *
         kTileRows * static_cast<std::size_t>(rows);
}

void fp8_batch_gemm(bf16* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream) {
  multiply({y, BatchOutput::Kind::bf16, weight.rows}, x, weight, rows, scratch, stream);
}

void fp8_batch_gemm(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                    float* scratch, cudaStream_t stream) {
  multiply({y, BatchOutput::Kind::f32, weight.rows}, x, weight, rows, scratch, stream);
}

void fp8_batch_gemm_add(float* y, const Fp8Rows& x, const DeviceWeightView& weight, int rows,
                        float* scratch, cudaStream_t stream) {
  multiply({y, BatchOutput::Kind::add, weight.rows}, x, weight, rows, scratch, stream);
}

}  // namespace winnow::ops::cuda
