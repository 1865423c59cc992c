// Linear layers of a batch (decode of many sequences) on the device, with weights in the same
// layout as for few rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "ops/cuda/linear/device_weight.h"

namespace winnow::ops::cuda {

/// The largest number of rows of a product.
inline constexpr int kMostSmallBatchRows = 64;

/// Whether the current device has the instructions that these kernels use.
bool has_small_batch_gemm();

/// Rows [rows, cols] in the order and the unit that products with weights of a format need
/// them (packed_rows.cuh), cols a multiple of 8. PackedMemory owns the memory.
struct PackedRows {
  DeviceWeightFormat format = DeviceWeightFormat::bf16;
  int rows = 0;
  int cols = 0;
  bf16* data = nullptr;

  /// Rows that products compute: 32 or 64.
  [[nodiscard]] int padded() const;
};

/// Memory for packed rows of `columns` columns. Products read columns past the last one, which must
/// stay zero. The layouts of 32 and 64 rows therefore have separate memory.
class PackedMemory {
 public:
  PackedMemory(DeviceWeightFormat format, int cols);

  [[nodiscard]] PackedRows rows(int count) const;

 private:
  DeviceWeightFormat format_;
  int cols_;
  std::size_t wide_;  // where the layout of 64 rows begins
  winnow::cuda::DeviceBuffer<bf16> memory_;
};

/// Parts of a product: their sum, [rows, cols], is x weight^T. Part i begins at
/// sums + i * rows * cols.
struct SmallBatchProduct {
  const float* sums = nullptr;
  int parts = 0;
  int rows = 0;
  int cols = 0;
};

/// The number of parts into which a product with this weight is split along its columns: enough to
/// keep all multiprocessors busy, as long as adding the parts takes less time than it saves.
int small_batch_parts(const DeviceWeightView& weight, int rows);

/// x weight^T in `parts` parts, written to `sums` [parts, rows, weight.rows]. Reads each weight
/// once, and starts to read before its predecessor in the stream is complete (programmatic
/// dependent launch). Operands are bf16 (int8 and int4: codes times scales, rounded, as
/// dequantize() does it), sums float, in an order that depends only on shapes and `parts`: a row's
/// bits do not depend on the contents of the other rows.
SmallBatchProduct small_batch_gemm(const DeviceWeightView& weight, const PackedRows& x, int parts,
                                   float* sums, cudaStream_t stream);

/// Uses of products whose columns are a multiple of 8:
/// y [rows, cols] = the product.
void store_product(float* y, const SmallBatchProduct& product, cudaStream_t stream);

/// hidden [rows, cols] += the product + bias, and `normed` = RMSNorm of hidden with this weight.
/// No product (0 parts): only the norm. `bias` may be null.
void add_and_norm(float* hidden, const SmallBatchProduct& product, const float* bias,
                  const float* norm_weight, float eps, const PackedRows& normed,
                  cudaStream_t stream);

/// y [rows, cols / 2] = silu(gate) * up of a product with paired weights, [gate, up] + bias.
void gate_product(const PackedRows& y, const SmallBatchProduct& product, const float* bias,
                  cudaStream_t stream);

/// packed = x [rows, cols], row-major.
void pack_rows(const PackedRows& packed, const bf16* x, cudaStream_t stream);

}  // namespace winnow::ops::cuda
