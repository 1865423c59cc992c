// What becomes of a tile's sums.
#pragma once

#include <cuda_bf16.h>

#include "ops/cuda/linear_rows_stream.cuh"

namespace winnow::ops::cuda {

/// Sums over the 32 lanes, the same in all of them.
inline __device__ float sum_of_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  return x;
}

/// Larger for larger logits and, of equals, for the lower index; 0 is less than any.
inline __device__ std::uint64_t argmax_key(float logit, int index) {
  const std::uint32_t bits = __float_as_uint(logit);
  const std::uint32_t ordered = isnan(logit)                ? 0U
                                : (bits & 0x80000000U) != 0 ? ~bits
                                                            : bits | 0x80000000U;
  return std::uint64_t{ordered} << 32 | ~static_cast<std::uint32_t>(index);
}

/// A tile's sums lie in shared memory as the warps' accumulators: [warps][16 rows][8 batch rows]
/// [lane][4]. Thread t finishes floats t, t + kRowsThreads, ... of [16 rows][8 batch
/// rows][lane][4].
template <class Format, int kRows, int kBatches>
class RowsOutput {
 public:
  static constexpr int kTiles = (kRows + 15) / 16;
  static constexpr int kSums = kTiles * kBatches * 128;
  static constexpr std::size_t kBytes = sizeof(float) * (kRowsWarps * kSums + kMostLinearRows);

  __device__ RowsOutput(const RowsArguments& arguments, std::byte* memory)
      : arguments_(arguments),
        rows_(arguments),
        sums_(reinterpret_cast<float*>(memory)),
        norms_(sums_ + kRowsWarps * kSums) {}

  /// 1 / RMS of each row of the input. To be seen after the next __syncthreads().
  __device__ void load_norms() const {
    const RowsInput& input = arguments_.input;
    const int lane = threadIdx.x % 32;
    for (int b = threadIdx.x / 32; b < input.rows; b += kRowsWarps) {
      float sum = 0.0F;
      for (int part = lane; part < input.parts; part += 32) {
        sum += input.square_sums[part * input.rows + b];
      }
      sum = sum_of_warp(sum);
      if (lane == 0) {
        const float mean = sum / static_cast<float>(arguments_.weight.cols);
        norms_[b] = input.parts > 0 ? rsqrtf(mean + input.eps) : 1.0F;
      }
    }
  }

  /// Fetches what the tile's sums will be combined with.
  __device__ void prepare(int tile) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const Place place(i);
      Output& output = outputs_[i];
      output.index = rows_.index(tile, place.row);
      output.inside =
          place.inside() && output.index < rows_.limit && place.batch < arguments_.input.rows;
      if (!output.inside) {
        continue;
      }
      const int row = rows_.row(tile, place.row);
      if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
        output.scale = reinterpret_cast<const float*>(arguments_.weight.scales)[row];
      }
      if (arguments_.bias != nullptr) {
        output.bias = arguments_.bias[row];
      }
      if (arguments_.epilogue == RowsEpilogue::residual) {
        output.hidden = arguments_.residual.hidden[at(place, output)];
        output.norm_weight = arguments_.residual.norm_weight[row];
      }
    }
  }

  /// A warp's accumulators of the tile.
  __device__ void put(const float (&sums)[kTiles][kBatches][4]) const {
    auto* to = reinterpret_cast<float4*>(sums_ + threadIdx.x / 32 * kSums) + threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int b = 0; b < kBatches; ++b) {
        const float(&x)[4] = sums[t][b];
        to[(t * kBatches + b) * 32] = {x[0], x[1], x[2], x[3]};
      }
    }
  }

  /// Once all warps have put theirs.
  __device__ void finish() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const Place place(i);
      if (place.inside()) {  // the same in a whole warp but for rows of no tile
        finish(place, outputs_[i], sum(place));
      }
    }
  }

  /// After the last tile and a __syncthreads().
  __device__ void close() const {
    if (arguments_.epilogue == RowsEpilogue::residual) {
      close_squares();
    } else if (arguments_.epilogue == RowsEpilogue::argmax) {
      close_argmax();
    }
  }

 private:
  static constexpr int kOutputs = (kSums + kRowsThreads - 1) / kRowsThreads;

  // Of a thread's i-th sum.
  struct Place {
    int number;
    int row;    // of the tile
    int batch;  // row of the input

    __device__ explicit Place(int i) : number(threadIdx.x + i * kRowsThreads) {
      const int lane = number / 4 % 32;
      row = number / 128 / kBatches * 16 + number / 2 % 2 * 8 + lane / 4;
      batch = number / 128 % kBatches * 8 + lane % 4 * 2 + number % 2;
    }
    __device__ bool inside() const { return number < kSums; }
    // Of [16 rows][quarter][batch row], where a quarter warp's threads sum up what belongs
    // together.
    __device__ int part() const {
      return (number / 128 / kBatches * 4 + number / 32 % 4) * kMostLinearRows + batch;
    }
    // One of the lanes whose sums are those of all lanes of the batch row.
    __device__ bool leads() const { return (number & 0b10010) == 0; }
  };

  struct Output {
    bool inside = false;
    int index = 0;
    float scale = 1.0F;
    float bias = 0.0F;
    float hidden = 0.0F;
    float norm_weight = 0.0F;
    float squares = 0.0F;
    std::uint64_t best = 0;
  };

  __device__ std::size_t at(const Place& place, const Output& output) const {
    return static_cast<std::size_t>(place.batch) * rows_.limit + output.index;
  }

  __device__ float sum(const Place& place) const {
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kRowsWarps; ++warp) {
      sum += sums_[warp * kSums + place.number];
    }
    return sum;
  }

  __device__ void finish(const Place& place, Output& output, float sum) const {
    const float norm = place.batch < arguments_.input.rows ? norms_[place.batch] : 0.0F;
    const float value = sum * (output.scale * Format::kUnit) * norm + output.bias;
    if (arguments_.epilogue == RowsEpilogue::silu) {
      const float up = __shfl_xor_sync(0xFFFFFFFFU, value, 2);
      if (output.inside && place.row % 16 < 8) {
        const float y = value / (1.0F + __expf(-value)) * up;
        arguments_.activated[at(place, output)] = {__bfloat16_as_ushort(__float2bfloat16_rn(y))};
      }
      return;
    }
    if (!output.inside) {
      return;
    }
    switch (arguments_.epilogue) {
      case RowsEpilogue::store:
        arguments_.out[at(place, output)] = value;
        break;
      case RowsEpilogue::residual: {
        const float hidden = output.hidden + value;
        arguments_.residual.hidden[at(place, output)] = hidden;
        arguments_.residual.normed[at(place, output)] = {
            __bfloat16_as_ushort(__float2bfloat16_rn(hidden * output.norm_weight))};
        output.squares += hidden * hidden;
        break;
      }
      default: {
        if (arguments_.out != nullptr) {
          arguments_.out[at(place, output)] = value;
        }
        const std::uint64_t key = argmax_key(value, output.index);
        output.best = key > output.best ? key : output.best;
      }
    }
  }

  // The order of these sums is that of the rows however many batch rows there are.
  __device__ void close_squares() const {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const Place place(i);
      if (!place.inside()) {
        continue;
      }
      float squares = outputs_[i].squares;
      squares += __shfl_xor_sync(0xFFFFFFFFU, squares, 2);
      squares += __shfl_xor_sync(0xFFFFFFFFU, squares, 16);
      if (place.leads()) {
        sums_[place.part()] = squares;
      }
    }
    __syncthreads();
    const int b = threadIdx.x;
    if (b < arguments_.input.rows) {
      float squares = 0.0F;
      for (int part = 0; part < kTiles * 4; ++part) {
        squares += sums_[part * kMostLinearRows + b];
      }
      arguments_.residual.square_sums[blockIdx.x * arguments_.input.rows + b] = squares;
    }
  }

  __device__ void close_argmax() const {
    auto* parts = reinterpret_cast<std::uint64_t*>(sums_);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const Place place(i);
      if (!place.inside()) {
        continue;
      }
      std::uint64_t best = outputs_[i].best;
      best = max(best, __shfl_xor_sync(0xFFFFFFFFU, best, 2));
      best = max(best, __shfl_xor_sync(0xFFFFFFFFU, best, 16));
      if (place.leads()) {
        parts[place.part()] = best;
      }
    }
    __syncthreads();
    const ArgmaxRows& argmax = arguments_.argmax;
    const int rows = arguments_.input.rows;
    const int b = threadIdx.x;
    if (b < rows) {
      std::uint64_t best = 0;
      for (int part = 0; part < kTiles * 4; ++part) {
        best = max(best, parts[part * kMostLinearRows + b]);
      }
      argmax.scratch[blockIdx.x * rows + b] = best;
      __threadfence();
    }
    merge_argmax(argmax, rows);
  }

  // The block that comes last takes the best of all.
  __device__ void merge_argmax(const ArgmaxRows& argmax, int rows) const {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
      last = atomicAdd(argmax.blocks_done, 1U) + 1 == gridDim.x;
    }
    __syncthreads();
    if (!last) {
      return;
    }
    __threadfence();
    const int lane = threadIdx.x % 32;
    for (int b = threadIdx.x / 32; b < rows; b += kRowsWarps) {
      std::uint64_t best = 0;
      for (int block = lane; block < gridDim.x; block += 32) {
        best = max(best, __ldcg(&argmax.scratch[block * rows + b]));
      }
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        best = max(best, __shfl_xor_sync(0xFFFFFFFFU, best, step));
      }
      if (lane == 0) {
        argmax.tokens[b] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
      }
    }
    if (threadIdx.x == 0) {
      *argmax.blocks_done = 0;
    }
  }

  const RowsArguments& arguments_;
  TileRows rows_;
  float* sums_;
  float* norms_;
  Output outputs_[kOutputs];
};

}  // namespace winnow::ops::cuda
