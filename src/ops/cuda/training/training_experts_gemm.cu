// Products of experts and their tokens: a block of 8 warps computes 128 x 128 sums of one expert,
// and fetches 32 elements of the summed dimension at a time, three stages deep (mma.sync).
#include "base/cuda/launch.cuh"
#include "ops/cuda/score_tile.cuh"
#include "ops/cuda/training/training_experts.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kSide = 128;  // rows and columns of a block's sums
constexpr int kDepth = 32;
constexpr int kStages = 3;
constexpr int kGemmThreads = 256;
constexpr int kWarpRows = 64;
constexpr int kWarpCols = 32;
constexpr int kRowTiles = kWarpRows / 16;  // of mma.m16n8
constexpr int kColTiles = kWarpCols / 8;
// So that eight neighbouring rows' 16-byte chunks are in different banks.
constexpr int kPad = 8;

using WarpSums = float[kRowTiles][kColTiles][4];

// A contiguous matrix [rows, cols] in device memory; cols a multiple of 8.
struct Source {
  const bf16* data;
  int rows;
  int cols;
};

__device__ void fetch_chunk(bf16* to, const bf16* from, bool there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? 16 : 0;  // the others become 0
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

__device__ void end_fetches() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// One stage of an operand: kDepth elements of the summed dimension for its kSide rows (or columns).
// kAlong: memory is contiguous along the sum, [kSide, kDepth]; else across it, [kDepth, kSide].
template <bool kAlong>
struct OperandTile {
  static constexpr int kRows = kAlong ? kSide : kDepth;
  static constexpr int kCols = kAlong ? kDepth : kSide;
  static constexpr int kStride = kCols + kPad;
  static constexpr int kElements = kRows * kStride;

  // Fetches from `source`, from `side` and `depth` on; zeros outside.
  static __device__ void fetch(bf16* tile, const Source& source, int side, int depth) {
    constexpr int kChunks = kCols / 8;
    static_assert(kRows * kChunks % kGemmThreads == 0);
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kGemmThreads; ++i) {
      const int chunk = i * kGemmThreads + static_cast<int>(threadIdx.x);
      const int row = chunk / kChunks;
      const int col = chunk % kChunks * 8;
      const int source_row = row + (kAlong ? side : depth);
      const int source_col = col + (kAlong ? depth : side);
      const bool there = source_row < source.rows && source_col < source.cols;
      const bf16* from =
          source.data + (there ? std::size_t(source_row) * source.cols + source_col : 0);
      fetch_chunk(tile + row * kStride + col, from, there);
    }
  }

  // [16, 16] of the left operand: rows from `side`, places from `depth` on.
  static __device__ void load_left(std::uint32_t (&x)[4], const bf16* tile, int side, int depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlong) {
      load_matrices<false>(x, at(tile, side + lane % 16, depth + lane / 16 * 8));
    } else {
      load_matrices<true>(x, at(tile, depth + lane / 16 * 8 + lane % 8, side + lane / 8 % 2 * 8));
    }
  }

  // [16, 16] of the right one, as two operands of 8 columns.
  static __device__ void load_right(std::uint32_t (&x)[4], const bf16* tile, int side, int depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlong) {
      load_matrices<false>(x, at(tile, side + lane / 16 * 8 + lane % 8, depth + lane / 8 % 2 * 8));
    } else {
      load_matrices<true>(x, at(tile, depth + lane / 8 % 2 * 8 + lane % 8, side + lane / 16 * 8));
    }
  }

 private:
  static __device__ const std::byte* at(const bf16* tile, int row, int col) {
    return reinterpret_cast<const std::byte*>(tile + row * kStride + col);
  }
};

constexpr int kTileElements = OperandTile<true>::kElements > OperandTile<false>::kElements
                                  ? OperandTile<true>::kElements
                                  : OperandTile<false>::kElements;
constexpr int kStageElements = 2 * kTileElements;
constexpr std::size_t kGemmBytes = kStages * kStageElements * sizeof(bf16);

__device__ int warp_row() {
  return static_cast<int>(threadIdx.x) / 32 % (kSide / kWarpRows) * kWarpRows;
}
__device__ int warp_col() {
  return static_cast<int>(threadIdx.x) / 32 / (kSide / kWarpRows) * kWarpCols;
}

template <class Left, class Right>
__device__ void add_stage(WarpSums& sums, const bf16* left, const bf16* right) {
#pragma unroll
  for (int depth = 0; depth < kDepth; depth += 16) {
    std::uint32_t rows[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      Left::load_left(rows[i], left, warp_row() + 16 * i, depth);
    }
#pragma unroll
    for (int j = 0; j < kColTiles; j += 2) {
      std::uint32_t cols[4];
      Right::load_right(cols, right, warp_col() + 8 * j, depth);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        multiply<__nv_bfloat162>(sums[i][j], rows[i], cols[0], cols[1]);
        multiply<__nv_bfloat162>(sums[i][j + 1], rows[i], cols[2], cols[3]);
      }
    }
  }
}

// Computes the sums of the block's rows of the left operand, from `row` on, and columns of the
// right, over `depth` places.
template <class Left, class Right>
__device__ void multiply_block_of(WarpSums& sums, const Source& left, const Source& right, int row,
                                  int col, int depth) {
  extern __shared__ uint4 shared_stages[];
  auto* stages = reinterpret_cast<bf16*>(shared_stages);
#pragma unroll
  for (auto& of_rows : sums) {
#pragma unroll
    for (auto& of_tile : of_rows) {
      of_tile[0] = of_tile[1] = of_tile[2] = of_tile[3] = 0.0F;
    }
  }
  const int steps = (depth + kDepth - 1) / kDepth;
  const auto fetch = [&](int step) {
    if (step < steps) {
      bf16* stage = stages + step % kStages * kStageElements;
      Left::fetch(stage, left, row, step * kDepth);
      Right::fetch(stage + kTileElements, right, col, step * kDepth);
    }
    end_fetches();
  };
  for (int step = 0; step < kStages - 1; ++step) {
    fetch(step);
  }
  for (int step = 0; step < steps; ++step) {
    wait_for_fetches<kStages - 2>();
    __syncthreads();  // all threads have this stage, and are done with the one that is fetched next
    fetch(step + kStages - 1);
    const bf16* stage = stages + step % kStages * kStageElements;
    add_stage<Left, Right>(sums, stage, stage + kTileElements);
  }
}

// f(row, column, two neighbouring sums) for the lane's part of the block's sums.
template <class F>
__device__ void for_each_pair(const WarpSums& sums, const F& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColTiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        f(warp_row() + 16 * i + 8 * half + lane / 4, warp_col() + 8 * j + lane % 4 * 2,
          float2{sums[i][j][2 * half], sums[i][j][2 * half + 1]});
      }
    }
  }
}

// Up to kSide places of one expert.
struct PlaceTile {
  int expert = -1;  // none
  int first = 0;
  int count = 0;
};

// Tile `number` over all experts, each of which has whole tiles. All lanes must call it.
__device__ PlaceTile find_place_tile(const std::int32_t* begins, int experts, int number) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    const int places = expert < experts ? begins[expert + 1] - begins[expert] : 0;
    const int tiles = (places + kSide - 1) / kSide;
    int up_to = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0U, up_to, step);
      up_to += lane >= step ? other : 0;
    }
    up_to += before;
    const unsigned votes = __ballot_sync(~0U, number < up_to);
    if (votes != 0) {
      const int own = __ffs(static_cast<int>(votes)) - 1;
      const int skipped = (number - __shfl_sync(~0U, up_to - tiles, own)) * kSide;
      const int found = base + own;
      return {found, begins[found] + skipped, min(kSide, __shfl_sync(~0U, places, own) - skipped)};
    }
    before = __shfl_sync(~0U, up_to, 31);
  }
  return {};
}

// An upper bound of the number of tiles.
unsigned place_tiles(const RoutedTokens& tokens) {
  return static_cast<unsigned>(tokens.places() / kSide + tokens.router.count);
}

unsigned blocks_of(int side) {
  return static_cast<unsigned>((side + kSide - 1) / kSide);
}

struct RowsCall {
  bf16* out;      // [places, columns]
  const bf16* x;  // [places, depth]
  ExpertMatrices<const bf16> matrices;
  RoutesView routes;
  int experts;
};

// kForward: out = x weight^T + bias; else out = x weight.
template <bool kForward>
__global__ void __launch_bounds__(kGemmThreads, 2) expert_rows_kernel(RowsCall call) {
  winnow::cuda::wait_for_predecessor();
  const PlaceTile tile =
      find_place_tile(call.routes.begins, call.experts, static_cast<int>(blockIdx.y));
  if (tile.expert < 0) {
    return;
  }
  const ExpertMatrices<const bf16>& m = call.matrices;
  const int columns = kForward ? m.outputs : m.inputs;
  const int depth = kForward ? m.inputs : m.outputs;
  const int col = static_cast<int>(blockIdx.x) * kSide;
  WarpSums sums;
  multiply_block_of<OperandTile<true>, OperandTile<kForward>>(
      sums, {call.x + std::size_t(tile.first) * depth, tile.count, depth},
      {m.weight + tile.expert * m.stride, m.outputs, m.inputs}, 0, col, depth);
  const float* bias =
      kForward && m.bias != nullptr ? m.bias + tile.expert * m.bias_stride : nullptr;
  for_each_pair(sums, [&](int row, int column, float2 pair) {
    column += col;
    if (row >= tile.count || column >= columns) {
      return;
    }
    if (bias != nullptr) {
      pair.x += bias[column];
      pair.y += bias[column + 1];
    }
    bf16* to = call.out + std::size_t(tile.first + row) * columns + column;
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(pair.x, pair.y);
  });
}

// A block per expert and [kSide, kSide] of its matrix: += dy^T x.
__global__ void __launch_bounds__(kGemmThreads, 2)
    expert_weights_kernel(ExpertMatrices<float> gradients, const bf16* dy, const bf16* x,
                          RoutesView routes) {
  winnow::cuda::wait_for_predecessor();
  const int expert = static_cast<int>(blockIdx.z);
  const int first = routes.begins[expert];
  const int places = routes.begins[expert + 1] - first;
  if (places == 0) {
    return;
  }
  const int outputs = gradients.outputs;
  const int inputs = gradients.inputs;
  const int row = static_cast<int>(blockIdx.y) * kSide;
  const int col = static_cast<int>(blockIdx.x) * kSide;
  WarpSums sums;
  multiply_block_of<OperandTile<false>, OperandTile<false>>(
      sums, {dy + std::size_t(first) * outputs, places, outputs},
      {x + std::size_t(first) * inputs, places, inputs}, row, col, places);
  float* out = gradients.weight + expert * gradients.stride;
  for_each_pair(sums, [&](int own_row, int own_col, float2 pair) {
    if (row + own_row >= outputs || col + own_col >= inputs) {
      return;
    }
    auto* to = reinterpret_cast<float2*>(out + std::size_t(row + own_row) * inputs + col + own_col);
    *to = {to->x + pair.x, to->y + pair.y};
  });
}

// Sums of an expert's rows, `kBiasRows` of them at a time, in a fixed order.
constexpr int kBiasCols = 32;
constexpr int kBiasRows = 8;

__global__ void __launch_bounds__(kBiasCols* kBiasRows)
    expert_bias_kernel(ExpertMatrices<float> gradients, const bf16* dy, RoutesView routes) {
  __shared__ float parts[kBiasRows][kBiasCols];
  winnow::cuda::wait_for_predecessor();
  const int expert = static_cast<int>(blockIdx.y);
  const int col = static_cast<int>(blockIdx.x * kBiasCols + threadIdx.x);
  const int end = routes.begins[expert + 1];
  float sum = 0.0F;
  for (int place = routes.begins[expert] + static_cast<int>(threadIdx.y);
       place < end && col < gradients.outputs; place += kBiasRows) {
    sum += to_float(dy[std::size_t(place) * gradients.outputs + col]);
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && col < gradients.outputs) {
    for (int i = 1; i < kBiasRows; ++i) {
      sum += parts[i][threadIdx.x];
    }
    gradients.bias[expert * gradients.bias_stride + col] += sum;
  }
}

template <class... Parameters, class... Arguments>
void launch_gemm(void (*kernel)(Parameters...), dim3 grid, cudaStream_t stream,
                 const Arguments&... arguments) {
  winnow::cuda::check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(kGemmBytes)),
                      "shared memory of experts");
  winnow::cuda::launch(kernel, grid, kGemmThreads, kGemmBytes, stream, true, arguments...);
}

}  // namespace

void multiply_expert_rows(const RoutedTokens& tokens, bf16* y, const bf16* x,
                          const ExpertMatrices<const bf16>& matrices, cudaStream_t stream) {
  launch_gemm(expert_rows_kernel<true>, dim3(blocks_of(matrices.outputs), place_tiles(tokens)),
              stream, RowsCall{y, x, matrices, tokens.routes, tokens.router.count});
}

void expert_input_gradients(const RoutedTokens& tokens, bf16* dx, const bf16* dy,
                            const ExpertMatrices<const bf16>& matrices, cudaStream_t stream) {
  launch_gemm(expert_rows_kernel<false>, dim3(blocks_of(matrices.inputs), place_tiles(tokens)),
              stream, RowsCall{dx, dy, matrices, tokens.routes, tokens.router.count});
}

void add_expert_gradients(const RoutedTokens& tokens, const ExpertMatrices<float>& gradients,
                          const bf16* dy, const bf16* x, cudaStream_t stream) {
  const auto experts = static_cast<unsigned>(tokens.router.count);
  if (gradients.weight != nullptr) {
    launch_gemm(expert_weights_kernel,
                dim3(blocks_of(gradients.inputs), blocks_of(gradients.outputs), experts), stream,
                gradients, dy, x, tokens.routes);
  }
  if (gradients.bias != nullptr) {
    const auto columns = static_cast<unsigned>((gradients.outputs + kBiasCols - 1) / kBiasCols);
    winnow::cuda::launch(expert_bias_kernel, dim3(columns, experts), dim3(kBiasCols, kBiasRows), 0,
                         stream, true, gradients, dy, tokens.routes);
  }
}

}  // namespace winnow::ops::cuda
