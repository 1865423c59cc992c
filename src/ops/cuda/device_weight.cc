#include "ops/cuda/device_weight.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/device_weight_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 20;

DeviceWeightLayout stacked_layout(std::span<const Weight> parts, DeviceWeightFormat format) {
  require(!parts.empty(), "a device weight needs a source");
  const std::int64_t cols = parts[0].cols;
  std::int64_t rows = 0;
  for (const Weight& part : parts) {
    require(part.cols == cols, "stacked weights must agree in columns: {} and {}", cols, part.cols);
    rows += part.rows;
  }
  const int multiple = format == DeviceWeightFormat::bf16 ? 8 : QuantizedWeight::kGroup;
  require(cols % multiple == 0,
          "a weight of {} columns cannot be held as {}, which needs a multiple of {}", cols,
          format_name(format), multiple);
  return {format, static_cast<int>(rows), static_cast<int>(cols)};
}

std::size_t row_bytes(const Weight& weight) {
  Weight row = weight;
  row.rows = 1;
  row.scales = nullptr;
  const std::size_t scales = weight.group == 0
                                 ? 0
                                 : static_cast<std::size_t>(weight.cols) /
                                       static_cast<std::size_t>(weight.group) * sizeof(bf16);
  return row.bytes() - scales;
}

ConvertedRows rows_from(const DeviceWeightLayout& layout, std::byte* memory, std::size_t first) {
  return {.format = layout.format,
          .padded_cols = static_cast<int>(layout.padded_cols()),
          .codes = memory + first * layout.row_codes(),
          .row_codes = layout.row_codes(),
          .scales = memory + layout.code_bytes() + first * layout.row_scales(),
          .row_scales = layout.row_scales()};
}

}  // namespace

std::string_view format_name(DeviceWeightFormat format) {
  switch (format) {
    case DeviceWeightFormat::bf16:
      return "bf16";
    case DeviceWeightFormat::fp8:
      return "fp8";
    case DeviceWeightFormat::int8:
      return "int8";
    case DeviceWeightFormat::int4:
      return "int4";
  }
  return "";
}

DeviceWeight::DeviceWeight(std::span<const Weight> parts, DeviceWeightFormat format)
    : layout_(stacked_layout(parts, format)), memory_(layout_.bytes()) {
  const winnow::cuda::Stream stream;
  winnow::cuda::DeviceBuffer<std::byte> codes;
  winnow::cuda::DeviceBuffer<bf16> scales;
  std::size_t first = 0;
  for (const Weight& part : parts) {
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
      winnow::cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream.get()),
                          "copy a weight to the device");
    };
    const std::size_t bytes = row_bytes(part);
    const auto* data = static_cast<const std::byte*>(part.data);
    const auto all = static_cast<std::size_t>(part.rows);
    if (part.format == WeightFormat::bf16 && format == DeviceWeightFormat::bf16 &&
        bytes == layout_.row_codes()) {
      copy(memory_.data() + first * bytes, data, all * bytes);
      first += all;
      continue;
    }
    const std::size_t groups =
        part.group == 0 ? 0 : static_cast<std::size_t>(part.cols / part.group);
    const std::size_t step = std::clamp<std::size_t>(kStagingBytes / bytes, 1, all);
    if (codes.size() < step * bytes) {
      codes = winnow::cuda::DeviceBuffer<std::byte>(step * bytes);
    }
    if (scales.size() < step * groups) {
      scales = winnow::cuda::DeviceBuffer<bf16>(step * groups);
    }
    for (std::size_t row = 0; row < all; row += step) {
      const std::size_t count = std::min(step, all - row);
      copy(codes.data(), data + row * bytes, count * bytes);
      if (groups > 0) {
        copy(scales.data(), part.scales + row * groups, count * groups * sizeof(bf16));
      }
      launch_convert(
          {part.format, static_cast<int>(count), layout_.cols, codes.data(), scales.data()},
          rows_from(layout_, memory_.data(), first), stream.get());
      first += count;
    }
  }
  stream.synchronize();
}

void dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                cudaStream_t stream) {
  require(first >= 0 && count >= 0 && first + count <= weight.rows,
          "rows {} to {} of a weight of {}", first, first + count, weight.rows);
  if (count > 0) {
    launch_dequantize(weight, first, count, out, stream);
  }
}

}  // namespace winnow::ops::cuda
