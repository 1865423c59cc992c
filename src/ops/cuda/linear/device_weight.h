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

/// bf16: unchanged. fp8: e4m3, one float scale per row, which maps the row's largest magnitude to
/// 448. int8, int4: one bf16 scale per 32 columns, the codes of QuantizedWeight.
enum class DeviceWeightFormat : std::uint8_t { bf16, fp8, int8, int4 };

/// The name used in messages and on the command line: "bf16", "fp8", ...
std::string_view format_name(DeviceWeightFormat format);

/// Rows that are stored together.
inline constexpr int kTileRows = 16;

/// Bytes of a row that are stored together: a step.
inline constexpr int kStepBytes = 64;

/// [rows, cols] = [out features, in features] in device memory, in the order in which a warp
/// multiplies them: tiles of 16 rows. A tile is a sequence of steps; a step is 64 bytes of each row
/// (32 columns of bf16, 64 of the 8-bit formats, 128 of int4) and its scales. Rows and columns are
/// padded with zeros. So a kernel reads long runs of memory, and a step is
///   codes   [16 rows][4 pieces][16 bytes]      piece c: columns 8 c to 8 c + 7 of each 32
///   scales  [16 rows][groups of the step] bf16  int8, int4
/// and fp8's scales follow all steps: [rows] float. Order within a piece: weight_codes.cuh.
///
/// `paired` (gate and up, concatenated): a tile has 8 rows of the upper half and the matching 8
/// rows of the lower half.
struct DeviceWeightLayout {
  DeviceWeightFormat format = DeviceWeightFormat::bf16;
  int rows = 0;
  int cols = 0;
  bool paired = false;

  /// Columns of a step.
  [[nodiscard]] int step_columns() const;
  /// Steps of a row.
  [[nodiscard]] int steps() const { return (cols + step_columns() - 1) / step_columns(); }
  [[nodiscard]] int tiles() const;
  /// Bytes of a tile's step.
  [[nodiscard]] std::size_t step_bytes() const;
  /// Bytes of all tiles: the offset of fp8's scales.
  [[nodiscard]] std::size_t tile_bytes() const;
  /// Bytes of everything: the traffic of reading it once.
  [[nodiscard]] std::size_t bytes() const;
};

/// What kernels see of a weight. Does not own the memory.
struct DeviceWeightView {
  DeviceWeightFormat format = DeviceWeightFormat::bf16;
  bool paired = false;
  int rows = 0;
  int cols = 0;
  int tiles = 0;
  int steps = 0;
  const std::byte* memory = nullptr;
  const float* row_scales = nullptr;  // fp8

  DeviceWeightView() = default;
  DeviceWeightView(const DeviceWeightLayout& layout, const std::byte* memory);
};

/// A weight that owns its device memory.
class DeviceWeight {
 public:
  DeviceWeight() = default;
  /// The rows of `parts`, concatenated (q, k and v; gate and up), with the same number of
  /// columns: a multiple of 8, of 32 for int8 and int4. Conversion runs on the device, a few rows
  /// at a time. Codes of a quantised source are kept if the format is the same; otherwise values
  /// are rounded once more.
  DeviceWeight(std::span<const Weight> parts, DeviceWeightFormat format, bool paired = false);
  DeviceWeight(const Weight& source, DeviceWeightFormat format, bool paired = false)
      : DeviceWeight(std::span(&source, 1), format, paired) {}

  [[nodiscard]] DeviceWeightView view() const { return {layout_, memory_.data()}; }
  /// The traffic of reading it once.
  [[nodiscard]] std::size_t bytes() const { return layout_.bytes(); }

 private:
  DeviceWeightLayout layout_;
  winnow::cuda::DeviceBuffer<std::byte> memory_;
};

/// Rows [first, first + count) rounded to bf16, row-major [count, cols], for products of many rows,
/// in the order of the source, paired or not.
void dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                cudaStream_t stream);

}  // namespace winnow::ops::cuda
