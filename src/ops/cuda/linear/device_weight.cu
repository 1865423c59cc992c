// Converts weights on the device: a thread handles a group of 32 columns, so that int8 and int4
// codes equal QuantizedWeight's, operation by operation (no fused multiply-add).
#include <cmath>

#include "base/cuda/device.h"
#include "ops/cuda/linear/device_weight_kernels.h"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float bf16_value(bf16 x) {
  return __uint_as_float(std::uint32_t{x.bits} << 16);
}

__device__ bf16 round_to_bf16(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

/// Columns [column, column + 32) of a staged row: codes of int8 and int4, zeros past the end.
struct Group {
  float scale = 1.0F;
  float codes[kBlockColumns];
  __device__ float value(int i) const { return __fmul_rn(scale, codes[i]); }
};

__device__ float staged_code(const StagedRows& source, std::size_t index) {
  switch (source.format) {
    case WeightFormat::f32:
      return reinterpret_cast<const float*>(source.data)[index];
    case WeightFormat::f16:
      return __half2float(reinterpret_cast<const __half*>(source.data)[index]);
    case WeightFormat::bf16:
      return bf16_value(reinterpret_cast<const bf16*>(source.data)[index]);
    case WeightFormat::int8:
      return static_cast<float>(reinterpret_cast<const std::int8_t*>(source.data)[index]);
    case WeightFormat::int4: {
      const auto byte = static_cast<int>(source.data[index / 2]);
      return static_cast<float>(((byte >> (index % 2 * 4)) & 15) - 8);
    }
  }
  return 0.0F;
}

__device__ Group load_group(const StagedRows& source, int row, int column) {
  Group group;
  const std::size_t at = static_cast<std::size_t>(row) * source.cols + column;
  if (is_quantized(source.format)) {
    group.scale = column < source.cols ? bf16_value(source.scales[at / kBlockColumns]) : 0.0F;
  }
  for (int i = 0; i < kBlockColumns; ++i) {
    group.codes[i] = column + i < source.cols ? staged_code(source, at + i) : 0.0F;
  }
  return group;
}

__device__ float largest_magnitude(const Group& group) {
  float largest = 0.0F;
  for (int i = 0; i < kBlockColumns; ++i) {
    largest = fmaxf(largest, fabsf(group.value(i)));
  }
  return largest;
}

__device__ float quantize(float value, float inverse_scale, float low, float high) {
  return fminf(fmaxf(rintf(__fmul_rn(value, inverse_scale)), low), high);
}

__device__ float inverse(bf16 scale) {
  const float value = bf16_value(scale);
  return value == 0.0F ? 0.0F : 1.0F / value;
}

__device__ bf16 refit_int4(const Group& group, bf16 scale) {
  const float factor = inverse(scale);
  float products = 0.0F;
  float squares = 0.0F;
  for (int i = 0; i < kBlockColumns; ++i) {
    const float value = group.value(i);
    const float q = quantize(value, factor, -8.0F, 7.0F);
    products = __fadd_rn(products, __fmul_rn(value, q));
    squares = __fadd_rn(squares, __fmul_rn(q, q));
  }
  return squares == 0.0F ? bf16{} : round_to_bf16(products / squares);
}

__device__ float int4_error(const Group& group, bf16 scale) {
  const float step = bf16_value(scale);
  const float factor = inverse(scale);
  float error = 0.0F;
  for (int i = 0; i < kBlockColumns; ++i) {
    const float value = group.value(i);
    const float miss = __fsub_rn(value, __fmul_rn(step, quantize(value, factor, -8.0F, 7.0F)));
    error = __fadd_rn(error, __fmul_rn(miss, miss));
  }
  return error;
}

/// The same search as in QuantizedWeight.
__device__ bf16 int4_scale(const Group& group) {
  constexpr int kCandidates = 17;
  const float largest = largest_magnitude(group);
  bf16 best{};
  float best_error = int4_error(group, best);
  for (int i = 0; i < 2 * kCandidates; ++i) {
    const float steps = 6.0F + 0.25F * static_cast<float>(i / 2);
    const float signed_largest = i % 2 == 0 ? largest : -largest;
    const bf16 scale = refit_int4(group, round_to_bf16(signed_largest / steps));
    const float error = int4_error(group, scale);
    if (error < best_error) {
      best = scale;
      best_error = error;
    }
  }
  return best;
}

/// Replaces the group's codes by int8 or int4 codes; returns their scale.
template <class Format>
__device__ bf16 requantize(Group& group) {
  constexpr bool kInt8 = Format::kFormat == DeviceWeightFormat::int8;
  const bf16 scale = kInt8 ? round_to_bf16(largest_magnitude(group) / 127.0F) : int4_scale(group);
  const float factor = inverse(scale);
  for (int i = 0; i < kBlockColumns; ++i) {
    group.codes[i] =
        quantize(group.value(i), factor, kInt8 ? -127.0F : -8.0F, kInt8 ? 127.0F : 7.0F);
  }
  return scale;
}

/// The column of a word's code `i`: the order that Format::pairs() reverses.
template <class Format>
__device__ int column_of(int i) {
  if constexpr (Format::kFormat == DeviceWeightFormat::bf16) {
    return i;
  } else if constexpr (Format::kFormat == DeviceWeightFormat::int4) {
    return i % 4 * 2 + i / 4;
  } else {
    return i % 2 * 2 + i / 2;
  }
}

/// Writes the codes of 32 columns, which start at a multiple of 32, to their places.
template <class Format>
__device__ void store_group(const Group& group, const DeviceWeightView& weight, int row,
                            int column) {
  constexpr int kBits = 32 / Format::kCodes;
  for (int first = 0; first < kBlockColumns; first += Format::kCodes) {
    std::uint32_t word = 0;
    for (int i = 0; i < Format::kCodes; ++i) {
      const float code = group.codes[first + column_of<Format>(i)];
      std::uint32_t bits = 0;
      if constexpr (Format::kFormat == DeviceWeightFormat::bf16) {
        bits = round_to_bf16(code).bits;
      } else if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
        bits = __nv_cvt_float_to_fp8(code, __NV_SATFINITE, __NV_E4M3);
      } else {
        bits = static_cast<std::uint32_t>(static_cast<int>(code) + (1 << (kBits - 1)));
      }
      word |= bits << (kBits * i);
    }
    if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
      word = Format::arranged(word);
    }
    const WeightPlace<Format> place(weight, row, column + first / 8 * 8);
    const std::size_t at =
        place.piece + place.block * (16 / Format::kBlocks) + first % 8 * kBits / 8;
    *reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(weight.memory) + at) = word;
  }
}

/// fp8: computes the scale of each row, a block per row.
__global__ void scale_rows(StagedRows source, float* scales) {
  __shared__ float parts[kThreads];
  float largest = 0.0F;
  for (int column = threadIdx.x * kBlockColumns; column < source.cols;
       column += kThreads * kBlockColumns) {
    largest = fmaxf(largest, largest_magnitude(load_group(source, blockIdx.x, column)));
  }
  parts[threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const float part : parts) {
      largest = fmaxf(largest, part);
    }
    scales[blockIdx.x] = largest / kF8E4M3Max;
  }
}

template <class Format>
__global__ void convert(StagedRows source, DeviceWeightView target, int first) {
  const int row = first + blockIdx.x;
  const int columns = target.steps * Format::kBlocks * kBlockColumns;
  for (int column = threadIdx.x * kBlockColumns; column < columns;
       column += kThreads * kBlockColumns) {
    Group group = load_group(source, blockIdx.x, column);
    if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
      const float scale = target.row_scales[row];
      for (int i = 0; i < kBlockColumns; ++i) {
        group.codes[i] = scale == 0.0F ? 0.0F : group.value(i) / scale;
      }
    } else if constexpr (Format::kGroupScales) {
      constexpr auto kSame =
          Format::kFormat == DeviceWeightFormat::int8 ? WeightFormat::int8 : WeightFormat::int4;
      const bf16 scale =
          source.format == kSame ? round_to_bf16(group.scale) : requantize<Format>(group);
      const WeightPlace<Format> place(target, row, column);
      *reinterpret_cast<bf16*>(const_cast<std::byte*>(target.memory) + place.scale) = scale;
    } else {
      for (int i = 0; i < kBlockColumns; ++i) {
        group.codes[i] = group.value(i);
      }
    }
    store_group<Format>(group, target, row, column);
  }
}

template <class Format>
__global__ void dequantize_rows(DeviceWeightView weight, int first, uint4* out) {
  const int eighths = weight.cols / 8;
  for (int i = threadIdx.x; i < eighths; i += kThreads) {
    float values[8];
    load_columns<Format>(weight, first + blockIdx.x, 8 * i, values);
    std::uint32_t pairs[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      pairs[p] = bits_of(__floats2bfloat162_rn(values[2 * p], values[2 * p + 1]));
    }
    out[std::size_t{blockIdx.x} * eighths + i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

}  // namespace

void launch_convert(const StagedRows& source, const DeviceWeightView& target, int first,
                    cudaStream_t stream) {
  if (target.format == DeviceWeightFormat::fp8) {
    scale_rows<<<source.rows, kThreads, 0, stream>>>(source,
                                                     const_cast<float*>(target.row_scales) + first);
  }
  with_format(target.format, [&](auto format) {
    convert<decltype(format)><<<source.rows, kThreads, 0, stream>>>(source, target, first);
  });
  winnow::cuda::check_launch("convert a weight");
}

void launch_dequantize(const DeviceWeightView& weight, int first, int count, bf16* out,
                       cudaStream_t stream) {
  with_format(weight.format, [&](auto format) {
    dequantize_rows<decltype(format)>
        <<<count, kThreads, 0, stream>>>(weight, first, reinterpret_cast<uint4*>(out));
  });
  winnow::cuda::check_launch("dequantize a weight");
}

}  // namespace winnow::ops::cuda
