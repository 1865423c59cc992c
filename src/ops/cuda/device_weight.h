// A weight matrix in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "ops/weight.h"

namespace winnow::ops::cuda {

/// bf16: as it is. fp8: e4m3, one float scale per row, which puts the row's largest magnitude at
/// 448. int8, int4: one bf16 scale per 32 columns, the codes of QuantizedWeight.
enum class DeviceWeightFormat : std::uint8_t { bf16, fp8, int8, int4 };

/// The name used in messages and on the command line: "bf16", "fp8", ...
std::string_view format_name(DeviceWeightFormat format);

/// [rows, cols] = [out features, in features] in device memory: codes, then scales.
///
/// bf16 codes are row-major, as cuBLAS takes them, with rows of a multiple of 32 columns. Rows of
/// the other formats have a multiple of 128, and the codes within each 64 bytes are ordered as the
/// lanes of a warp multiply them (weight_codes.cuh): piece c of 4 pieces of 16 bytes holds columns
/// 8 c to 8 c + 7 of each group of 32. The padding is zeros.
struct DeviceWeightLayout {
  DeviceWeightFormat format = DeviceWeightFormat::bf16;
  int rows = 0;
  int cols = 0;

  /// Columns of a row with its padding.
  [[nodiscard]] constexpr std::size_t padded_cols() const {
    const auto n = static_cast<std::size_t>(cols);
    const std::size_t multiple = format == DeviceWeightFormat::bf16 ? 32 : 128;
    return (n + multiple - 1) / multiple * multiple;
  }
  /// Bytes of a row's codes.
  [[nodiscard]] constexpr std::size_t row_codes() const {
    return format == DeviceWeightFormat::bf16   ? 2 * padded_cols()
           : format == DeviceWeightFormat::int4 ? padded_cols() / 2
                                                : padded_cols();
  }
  /// Bytes of a row's scales.
  [[nodiscard]] constexpr std::size_t row_scales() const {
    return format == DeviceWeightFormat::bf16  ? 0
           : format == DeviceWeightFormat::fp8 ? sizeof(float)
                                               : (padded_cols() / 32 * sizeof(bf16) + 15) / 16 * 16;
  }
  /// Bytes of all codes: where the scales begin.
  [[nodiscard]] constexpr std::size_t code_bytes() const {
    return static_cast<std::size_t>(rows) * row_codes();
  }
  /// Bytes of everything: what reading it once moves.
  [[nodiscard]] constexpr std::size_t bytes() const {
    return code_bytes() + static_cast<std::size_t>(rows) * row_scales();
  }
};

/// What kernels see of a weight. The memory is somebody else's.
struct DeviceWeightView {
  DeviceWeightFormat format = DeviceWeightFormat::bf16;
  int rows = 0;
  int cols = 0;
  const std::byte* codes = nullptr;
  std::size_t row_codes = 0;  // bytes from row to row
  const std::byte* scales = nullptr;
  std::size_t row_scales = 0;

  DeviceWeightView() = default;
  DeviceWeightView(const DeviceWeightLayout& layout, const std::byte* memory)
      : format(layout.format),
        rows(layout.rows),
        cols(layout.cols),
        codes(memory),
        row_codes(layout.row_codes()),
        scales(memory + layout.code_bytes()),
        row_scales(layout.row_scales()) {}
};

/// A weight that owns its device memory.
class DeviceWeight {
 public:
  DeviceWeight() = default;
  /// The rows of `parts` one below another (q, k and v; gate and up), which have the same number of
  /// columns. Conversion runs on the device, a few rows at a time. Codes of a quantised source are
  /// kept when the format is the same; else values are rounded once more.
  DeviceWeight(std::span<const Weight> parts, DeviceWeightFormat format);
  DeviceWeight(const Weight& source, DeviceWeightFormat format)
      : DeviceWeight(std::span(&source, 1), format) {}

  [[nodiscard]] DeviceWeightView view() const { return {layout_, memory_.data()}; }

 private:
  DeviceWeightLayout layout_;
  winnow::cuda::DeviceBuffer<std::byte> memory_;
};

/// Rows [first, first + count) rounded to bf16, row-major [count, cols], for products of many rows.
void dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                cudaStream_t stream);

}  // namespace winnow::ops::cuda
