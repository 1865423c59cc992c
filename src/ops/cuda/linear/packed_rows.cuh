// The layout of activations for small-batch GEMMs: slabs of 64 columns, each with 128 bytes of each
// row, swizzled for wgmma. The order of columns is the order in which lanes hold a weight's
// columns. Two products process 32 columns, of which lane c of four has columns 8 c to 8 c + 7
// (weight_codes.cuh) as pairs 0 to 3: a product needs the first pairs of all lanes, then the
// second ones.
#pragma once

#include "ops/cuda/eight.cuh"
#include "ops/cuda/linear/small_batch_gemm_kernels.h"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {

/// Rows that products read, as kernels see them.
struct PackedView {
  bf16* data;
  int padded;
  float unit;  // the factor of activations: a power of two

  explicit PackedView(const PackedRows& rows)
      : PackedView(rows.data, rows.padded(), unit_of(rows.format)) {}
  __host__ __device__ PackedView(bf16* memory, int rows, float activation_unit)
      : data(memory), padded(rows), unit(activation_unit) {}

  static float unit_of(DeviceWeightFormat format) {
    return format == DeviceWeightFormat::fp8 ? Fp8Weight::activation_unit(0) : 1.0F;
  }

  /// Stores columns [column, column + 8) of a row; column a multiple of 8.
  __device__ void store(int row, int column, const Eight& x) const {
    const int slab = column / kSlabColumns;
    const int block = column % kSlabColumns / kBlockColumns;
    const int lane = column % kBlockColumns / 8;
    auto* words = reinterpret_cast<__nv_bfloat162*>(
        data + (static_cast<std::size_t>(slab) * padded + row) * kSlabColumns);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int piece = (4 * block + i) ^ (row % 8);
      words[4 * piece + lane] =
          __floats2bfloat162_rn(x.values[2 * i] * unit, x.values[2 * i + 1] * unit);
    }
  }
};

}  // namespace winnow::ops::cuda
