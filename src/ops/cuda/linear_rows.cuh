// The kernel of linear layers of few rows. Lane 4 g + c, g < 8 and c < 4, of the products
// [16, 16] x [16, 8]: weight rows g and g + 8 on the left, batch row g on the right, and of each
// block of 32 columns, which two products take, columns 8 c to 8 c + 7 of both: the columns of a
// product may come in any order, so what lies together in memory is the operand. Columns are split
// between the warps, which meet once per tile.
#pragma once

#include "ops/cuda/linear_rows_output.cuh"

namespace winnow::ops::cuda {

/// One warp's part of a tile.
template <class Format, int kRows, int kBatches>
class RowsProduct {
 public:
  using Stage = RowsStage<Format, kRows>;
  using Output = RowsOutput<Format, kRows, kBatches>;
  static constexpr int kTiles = Output::kTiles;

  __device__ RowsProduct(const RowsArguments& arguments, int count)
      : arguments_(arguments),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        count_(count),
        // All warps go round as often: the first has the most.
        turns_((static_cast<int>(arguments.weight.row_codes) + Stage::kSpan * kRowsWarps - 1) /
               (Stage::kSpan * kRowsWarps)) {}

  __device__ void load_first_inputs() {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      load_inputs(i, i);
    }
  }

  __device__ void run(WeightStream<Format, kRows>& stream, bool last,
                      float (&sums)[kTiles][kBatches][4]) {
    for (int first = 0; first < turns_; first += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (first + i < count_) {
          multiply_stage(stream.wait(), i, sums);
          stream.release();
        }
        if (first + i + kAhead < turns_) {
          load_inputs(first + i + kAhead, i);
        } else if (turns_ > kAhead && !last) {
          load_inputs(i, i);  // of the next tile, the same again
        }
      }
    }
  }

 private:
  static constexpr int kBlocks = Format::kSteps * Format::kBlocks;  // of a span
  static constexpr int kAhead = 8 / kBlocks;                        // spans whose inputs are held

  // Inputs of the warp's span number `i`, as part `place` of those held.
  __device__ void load_inputs(int i, int place) {
    const RowsInput& input = arguments_.input;
    const int cols = arguments_.weight.cols;
    const int first = (warp_ + i * kRowsWarps) * Stage::kSpanColumns + lane_ % 4 * 8;
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      const int row = batch * 8 + lane_ / 4;
      const bf16* x = input.x + static_cast<std::size_t>(row) * cols + first;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int column = block * kBlockColumns;
        uint4 values{};
        if (row < input.rows && first + column < cols) {
          values = *reinterpret_cast<const uint4*>(x + column);
        }
        std::uint32_t(&to)[4] = inputs_[place * kBlocks + block][batch];
        to[0] = values.x;
        to[1] = values.y;
        to[2] = values.z;
        to[3] = values.w;
      }
    }
  }

  static __device__ void load(std::uint32_t (&words)[4], const std::byte* from) {
    memcpy(words, __builtin_assume_aligned(from, 16), 16);
  }

  __device__ void multiply_stage(const std::byte* stage, int place,
                                 float (&sums)[kTiles][kBatches][4]) const {
    const int g = lane_ / 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const bool whole = tile * 16 + 8 < kRows;
      float scales[2][kBlocks];
      if constexpr (Format::kGroupScales) {
        const std::byte* from = stage + kRows * Stage::kSpan + (tile * 16 + g) * Stage::kScales;
        load_scales(scales[0], from);
        load_scales(scales[1], whole ? from + 8 * Stage::kScales : from);
      }
#pragma unroll
      for (int step = 0; step < Format::kSteps; ++step) {
        std::uint32_t words[2][4] = {};
        const int at = tile * 16 * Stage::kSpan + Stage::at(g, 4 * step + lane_ % 4);
        load(words[0], stage + at);
        if (whole) {
          load(words[1], stage + at + 8 * Stage::kSpan);
        }
#pragma unroll
        for (int j = 0; j < Format::kBlocks; ++j) {
          const int block = step * Format::kBlocks + j;
          const float own[2] = {scales[0][block], scales[1][block]};
          multiply_block(words, j, own, inputs_[place * kBlocks + block], sums[tile], whole);
        }
      }
    }
  }

  __device__ void multiply_block(const std::uint32_t (&words)[2][4], int j,
                                 const float (&scales)[2],
                                 const std::uint32_t (&inputs)[kBatches][4],
                                 float (&sums)[kBatches][4], bool whole) const {
    std::uint32_t weights[2][4] = {};
    Format::pairs(words[0], j, weights[0]);
    if (whole) {
      Format::pairs(words[1], j, weights[1]);
    }
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      float products[4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t left[4] = {weights[0][2 * half], weights[1][2 * half],
                                       weights[0][2 * half + 1], weights[1][2 * half + 1]};
        multiply<__nv_bfloat162>(Format::kGroupScales ? products : sums[batch], left,
                                 in_unit(inputs[batch][2 * half]),
                                 in_unit(inputs[batch][2 * half + 1]));
      }
      if constexpr (Format::kGroupScales) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[batch][i] += scales[i / 2] * products[i];
        }
      }
    }
  }

  static __device__ void load_scales(float (&scales)[kBlocks], const std::byte* from) {
    std::uint32_t words[kBlocks / 2];
    memcpy(words, __builtin_assume_aligned(from, sizeof(words)), sizeof(words));
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      scales[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000U);
    }
  }

  static __device__ std::uint32_t in_unit(std::uint32_t inputs) {
    if constexpr (Format::kActivationUnit == 1.0F) {
      return inputs;
    } else {
      __nv_bfloat162 pair;
      memcpy(&pair, &inputs, sizeof(pair));
      return bits_of(__hmul2(pair, __float2bfloat162_rn(Format::kActivationUnit)));
    }
  }

  const RowsArguments& arguments_;
  int lane_;
  int warp_;
  int count_;
  int turns_;
  std::uint32_t inputs_[kAhead * kBlocks][kBatches][4];
};

template <class Format, int kRows, int kBatches>
constexpr std::size_t rows_shared_bytes() {
  using Stage = RowsStage<Format, kRows>;
  return std::size_t{kRowsWarps} * Stage::kCount * Stage::kBytes +
         RowsOutput<Format, kRows, kBatches>::kBytes;
}

template <class Format, int kRows, int kBatches>
__global__ __launch_bounds__(kRowsThreads, 2) void linear_rows_kernel(
    const __grid_constant__ RowsArguments arguments) {
  using Product = RowsProduct<Format, kRows, kBatches>;
  using Stage = typename Product::Stage;
  extern __shared__ __align__(16) std::byte memory[];
  constexpr int kWarpBytes = Stage::kCount * Stage::kBytes;
  WeightStream<Format, kRows> stream(arguments, memory + threadIdx.x / 32 * kWarpBytes);
  typename Product::Output output(arguments, memory + kRowsWarps * kWarpBytes);
  stream.fill();
  wait_for_previous_kernel();
  Product product(arguments, stream.count());
  product.load_first_inputs();
  output.prepare(blockIdx.x);
  output.load_norms();
  for (int tile = blockIdx.x; tile < arguments.tiling.tiles; tile += gridDim.x) {
    const bool last = tile + gridDim.x >= arguments.tiling.tiles;
    float sums[Product::kTiles][kBatches][4] = {};
    product.run(stream, last, sums);
    output.put(sums);
    __syncthreads();
    output.finish();
    __syncthreads();
    if (!last) {
      output.prepare(tile + gridDim.x);
    }
  }
  output.close();
}

template <class Format, int kRows, int kBatches>
void launch_tiles(const RowsArguments& arguments, RowsLaunch launch) {
  constexpr std::size_t kBytes = rows_shared_bytes<Format, kRows, kBatches>();
  auto* kernel = linear_rows_kernel<Format, kRows, kBatches>;
  static const bool allowed = (allow_shared_memory(kernel, kBytes), true);
  static_cast<void>(allowed);
  launch_dependent(kernel, arguments.tiling.blocks, kRowsThreads, kBytes, launch.stream,
                   launch.overlap, arguments);
}

template <class Format>
void launch_linear_rows(const RowsArguments& arguments, RowsLaunch launch) {
  const bool wide = arguments.input.rows > 8;
  switch (arguments.tiling.rows) {
    case 32:
      return wide ? launch_tiles<Format, 32, 2>(arguments, launch)
                  : launch_tiles<Format, 32, 1>(arguments, launch);
    case 24:
      return wide ? launch_tiles<Format, 24, 2>(arguments, launch)
                  : launch_tiles<Format, 24, 1>(arguments, launch);
    default:
      return wide ? launch_tiles<Format, 16, 2>(arguments, launch)
                  : launch_tiles<Format, 16, 1>(arguments, launch);
  }
}

}  // namespace winnow::ops::cuda
