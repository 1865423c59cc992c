#include "ops/cuda/linear/device_weight.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/linear/device_weight_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 20;

DeviceWeightLayout stacked_layout(std::span<const Weight> parts, DeviceWeightFormat format,
                                  bool paired) {
  require(!parts.empty(), "a device weight needs a source");
  const std::int64_t cols = parts[0].cols;
  std::int64_t rows = 0;
  for (const Weight& part : parts) {
    require(part.cols == cols, "stacked weights must agree in columns: {} and {}", cols, part.cols);
    rows += part.rows;
  }
  const bool grouped = format == DeviceWeightFormat::int8 || format == DeviceWeightFormat::int4;
  const int multiple = grouped ? QuantizedWeight::kGroup : 8;
  require(cols % multiple == 0,
          "a weight of {} columns cannot be held as {}, which needs a multiple of {}", cols,
          format_name(format), multiple);
  require(!paired || rows % 2 == 0, "paired weights have as many rows each: {} in all", rows);
  return {format, static_cast<int>(rows), static_cast<int>(cols), paired};
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

int DeviceWeightLayout::step_columns() const {
  switch (format) {
    case DeviceWeightFormat::bf16:
      return 32;
    case DeviceWeightFormat::int4:
      return 128;
    default:
      return 64;
  }
}

int DeviceWeightLayout::tiles() const {
  const int of_tile = paired ? kTileRows / 2 : kTileRows;
  return ((paired ? rows / 2 : rows) + of_tile - 1) / of_tile;
}

std::size_t DeviceWeightLayout::step_bytes() const {
  const bool grouped = format == DeviceWeightFormat::int8 || format == DeviceWeightFormat::int4;
  const int scales = grouped ? step_columns() / QuantizedWeight::kGroup : 0;
  return kTileRows * (kStepBytes + sizeof(bf16) * static_cast<std::size_t>(scales));
}

std::size_t DeviceWeightLayout::tile_bytes() const {
  return static_cast<std::size_t>(tiles()) * static_cast<std::size_t>(steps()) * step_bytes();
}

std::size_t DeviceWeightLayout::bytes() const {
  const bool scaled = format == DeviceWeightFormat::fp8;
  return tile_bytes() + (scaled ? sizeof(float) * static_cast<std::size_t>(rows) : 0);
}

DeviceWeightView::DeviceWeightView(const DeviceWeightLayout& layout, const std::byte* memory)
    : format(layout.format),
      paired(layout.paired),
      rows(layout.rows),
      cols(layout.cols),
      tiles(layout.tiles()),
      steps(layout.steps()),
      memory(memory),
      row_scales(reinterpret_cast<const float*>(memory + layout.tile_bytes())) {}

DeviceWeight::DeviceWeight(std::span<const Weight> parts, DeviceWeightFormat format, bool paired)
    : layout_(stacked_layout(parts, format, paired)), memory_(layout_.bytes()) {
  const winnow::cuda::Stream stream;
  winnow::cuda::check(cudaMemsetAsync(memory_.data(), 0, memory_.size(), stream.get()), "fill");
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    winnow::cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream.get()),
                        "copy a weight to the device");
  };
  winnow::cuda::DeviceBuffer<std::byte> codes(0);
  winnow::cuda::DeviceBuffer<bf16> scales(0);
  std::size_t first = 0;
  for (const Weight& part : parts) {
    const std::size_t bytes = row_bytes(part);
    const auto* data = static_cast<const std::byte*>(part.data);
    const auto all = static_cast<std::size_t>(part.rows);
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
          {part.format, static_cast<int>(count), layout_.cols, codes.data(), scales.data()}, view(),
          static_cast<int>(first), stream.get());
      first += count;
    }
    stream.synchronize();  // the staging memory may be replaced
  }
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
