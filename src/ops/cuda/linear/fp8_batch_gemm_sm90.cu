// Products of a large batch in fp8 with Hopper-specific instructions (sm_90a). Blocks process units
// of work round-robin, with the same structure as in small_batch_gemm_sm90.cu:
//   8 warps (two warpgroups) have a tile of weights each and multiply its codes by the codes of all
//     rows of the batch, whose sums a warpgroup holds;
//   one more warp loads weights in storage order, and boxes of rows, into a ring that fills shared
//   memory.
#include "base/cuda/launch.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/linear/batch_ring_sm90.cuh"
#include "ops/cuda/linear/fp8_batch_gemm_kernels.h"
#include "ops/cuda/linear/tile_product_sm90.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kFeedingWarp = kSmallBatchTiles;
constexpr int kMultipliers = kSmallBatchTiles * 32;
// With whole warpgroups, registers can move to the warps that multiply: 9 warps would have 168
// each, too few for the sums of 256 rows, and products would wait for each other.
constexpr int kWarpgroups = 3;
constexpr int kBatchThreads = kWarpgroups * kWarpgroup;
constexpr int kFeedingRegisters = 40;
constexpr int kMultiplyingRegisters = 232;
static_assert(registers_suffice(kWarpgroups, kFeedingRegisters + 2 * kMultiplyingRegisters));

// Rows of results that a warp transposes at a time.
constexpr int kStoredRows = 32;
constexpr int kStoredStride = kTileRows + 4;  // no two lanes write to the same bank
using StoredRows = float[kStoredRows][kStoredStride];

/// A stage of the ring.
template <int Rows>
struct Fp8Stage {
  static constexpr int kSteps = kFp8StageColumns / (Fp8Weight::kBlocks * kBlockColumns);
  static constexpr int kTileBytes = kSteps * kTileStepBytes<Fp8Weight>;
  static constexpr int kWeightBytes = kSmallBatchTiles * kTileBytes;
  static constexpr int kRowBytes = Rows * kFp8StageColumns;
  static constexpr int kFit = kSmallBatchRingBytes / (kWeightBytes + kRowBytes);
  static constexpr int kCount = kFit < kMostStages ? kFit : kMostStages;
  static constexpr int kSharedBytes = 1024 + kCount * (kWeightBytes + kRowBytes);
  static_assert(kSharedBytes + sizeof(StoredRows) * kSmallBatchTiles + sizeof(float) * Rows +
                    2 * sizeof(Barrier) * kCount <=
                227 * 1024);
};

/// Writes eight sums to columns of the output.
template <BatchOutput::Kind kKind>
__device__ void put(void* y, std::size_t at, Eight sums) {
  if constexpr (kKind == BatchOutput::Kind::bf16) {
    store_eight(static_cast<bf16*>(y) + at, sums);
  } else {
    float* const to = static_cast<float*>(y) + at;
    if constexpr (kKind == BatchOutput::Kind::add) {
      const Eight before = load_eight(to);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sums.values[j] += before.values[j];
      }
    }
    store_eight(to, sums);
  }
}

/// A warp with a tile. Lane 4 g + c has weight rows g and g + 8 and, in the results, rows 2 c and
/// 2 c + 1 of each 8.
template <int Rows>
class Fp8Multiplier {
 public:
  using Stage = Fp8Stage<Rows>;
  /// `scales` are those of the batch's rows; `stored` is this warp's own memory.
  __device__ Fp8Multiplier(const Fp8BatchArguments& arguments, const BatchRing<Stage>& ring,
                           const float* scales, StoredRows& stored)
      : arguments_(arguments),
        ring_(ring),
        scales_(scales),
        stored_(stored),
        tile_(static_cast<int>(threadIdx.x) / 32),
        row_(static_cast<int>(threadIdx.x) % 32 / 4),
        lane_(static_cast<int>(threadIdx.x) % 4) {}

  __device__ void run() {
    PipelineState<Stage::kCount> pipe;
    float sums[Rows / 2];
    clear(sums);
    for (StageWalk walk(arguments_.work); !walk.is_over(); pipe.next()) {
      ring_.full[pipe.stage].wait(pipe.parity);
      multiply(sums, ring_.rows + pipe.stage * Stage::kRowBytes,
               ring_.weights + pipe.stage * Stage::kWeightBytes,
               arguments_.weight.steps - walk.stage() * Stage::kSteps);
      release(ring_.empty[pipe.stage]);
      if (walk.ends_unit()) {
        store(sums, walk);
        clear(sums);
      }
      walk.next();
    }
  }

 private:
  static constexpr int kBlocks = Stage::kSteps * Fp8Weight::kBlocks;
  using Operands = std::uint32_t[kBlocks][4];

  // sums += the product of a stage that has `steps` steps, or all.
  __device__ void multiply(float (&sums)[Rows / 2], const std::byte* rows, const std::byte* weights,
                           int steps) const {
    Operands left;
    load(left, weights, steps);
    const std::uint64_t right = matrix_descriptor(rows, Stage::kRowBytes);
    begin_products();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      multiply_codes_by_rows(sums, left[block], right + block * (kBlockColumns / 16));
    }
    commit_products();
    wait_for_products<0>(sums);
  }

  // In each block of 32 columns a product needs columns 4 c to 4 c + 3 from lane c, then the same
  // 16 columns later: words of the pieces (DeviceWeightLayout) c / 2 and 2 + c / 2.
  __device__ void load(Operands& left, const std::byte* weights, int steps) const {
    const std::uint32_t first = shared_address(weights + tile_ * Stage::kTileBytes);
    const bool odd = lane_ % 2 != 0;
#pragma unroll
    for (int step = 0; step < Stage::kSteps; ++step) {
      const std::uint32_t mask = step < steps ? ~0U : 0U;  // a branch would serialise products
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t at =
            first + step * kTileStepBytes<Fp8Weight> + (row_ + 8 * half) * kStepBytes;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          std::uint32_t words[4];
          load_shared(words, at + (2 * part + lane_ / 2) * 16);
#pragma unroll
          for (int j = 0; j < Fp8Weight::kBlocks; ++j) {
            const std::uint32_t word = odd ? words[2 * j + 1] : words[2 * j];
            left[step * Fp8Weight::kBlocks + j][2 * part + half] = Fp8Weight::codes(word) & mask;
          }
        }
      }
    }
  }

  __device__ void store(const float (&sums)[Rows / 2], const StageWalk& walk) const {
    using Kind = BatchOutput::Kind;
    const int tile = walk.group() * kSmallBatchTiles + tile_;
    const BatchOutput& out = arguments_.out;
    if (tile >= arguments_.weight.tiles) {
      return;
    }
    if (arguments_.work.parts > 1) {
      store_as<Kind::f32>(
          sums, tile,
          arguments_.sums + static_cast<std::size_t>(walk.part()) * arguments_.rows * out.cols);
    } else if (out.kind == Kind::bf16) {
      store_as<Kind::bf16>(sums, tile, out.y);
    } else if (out.kind == Kind::f32) {
      store_as<Kind::f32>(sums, tile, out.y);
    } else {
      store_as<Kind::add>(sums, tile, out.y);
    }
  }

  // Goes through shared memory, so that a lane has eight columns of a row.
  template <BatchOutput::Kind kKind>
  __device__ void store_as(const float (&sums)[Rows / 2], int tile, void* y) const {
    const DeviceWeightView& weight = arguments_.weight;
    const float upper_scale = weight.row_scales[first_column(tile, 0) + row_];
    const float lower_scale = weight.row_scales[first_column(tile, 1) + row_];
    const int thread = static_cast<int>(threadIdx.x) % 32;
    const int half = thread % 2;
    const std::size_t column = first_column(tile, half);
#pragma unroll
    for (int first = 0; first < Rows; first += kStoredRows) {
#pragma unroll
      for (int row = 0; row < kStoredRows; row += 8) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* const to = stored_[row + 2 * lane_ + i];
          to[row_] = sums[(first + row) / 2 + i] * upper_scale;
          to[row_ + 8] = sums[(first + row) / 2 + 2 + i] * lower_scale;
        }
      }
      __syncwarp();
#pragma unroll
      for (int at = thread / 2; at < kStoredRows; at += 16) {
        const int row = first + at;
        if (row < arguments_.rows) {
          Eight eight = load_eight(&stored_[at][8 * half]);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            eight.values[j] *= scales_[row];
          }
          put<kKind>(y, static_cast<std::size_t>(row) * weight.rows + column, eight);
        }
      }
      __syncwarp();
    }
  }

  // For the upper or lower eight weight rows of a tile. Both sizes are multiples of 16, so tiles
  // are whole.
  [[nodiscard]] __device__ int first_column(int tile, int half) const {
    const DeviceWeightView& weight = arguments_.weight;
    return weight.paired ? tile * 8 + half * (weight.rows / 2) : tile * kTileRows + half * 8;
  }

  const Fp8BatchArguments& arguments_;
  const BatchRing<Stage>& ring_;
  const float* scales_;
  StoredRows& stored_;
  int tile_;
  int row_;
  int lane_;
};

template <int Rows>
__global__ void __launch_bounds__(kBatchThreads, 1)
    multiply_codes_kernel(const __grid_constant__ Fp8BatchArguments arguments,
                          const __grid_constant__ CUtensorMap codes) {
  using Stage = Fp8Stage<Rows>;
  extern __shared__ std::byte memory[];
  __shared__ Barrier full[Stage::kCount];
  __shared__ Barrier empty[Stage::kCount];
  __shared__ float scales[Rows];
  __shared__ alignas(16) StoredRows stored[kSmallBatchTiles];
  const BatchRing<Stage> ring(memory, full, empty);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kMultipliers) {
    take_registers<kMultiplyingRegisters>();
    winnow::cuda::wait_for_predecessor();  // it may read the memory that this kernel writes
    if (thread < arguments.rows) {
      scales[thread] = arguments.scales[thread];
    }
    sync_named(1, kMultipliers);
    Fp8Multiplier<Rows>(arguments, ring, scales, stored[thread / 32]).run();
    return;
  }
  give_registers<kFeedingRegisters>();
  if (thread / 32 == kFeedingWarp) {
    const auto bring_rows = [&codes](Barrier& barrier, std::byte* to, int stage) {
      constexpr int kPairs = kFp8StageColumns / static_cast<int>(sizeof(bf16));
      barrier.copy_box(to, codes, 0, stage * kPairs);
    };
    BatchFeeder<Fp8Weight, Stage, decltype(bring_rows)>(arguments.weight, arguments.work, ring,
                                                        bring_rows)
        .run();
  }
}

template <int Rows>
void launch_for(const Fp8BatchArguments& arguments, const CUtensorMap& codes, cudaStream_t stream) {
  constexpr int kShared = Fp8Stage<Rows>::kSharedBytes;
  const auto kernel = multiply_codes_kernel<Rows>;
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
      "shared memory of a batch's products in fp8");
  const int blocks = min(arguments.work.units, winnow::cuda::multiprocessor_count());
  winnow::cuda::launch(kernel, blocks, kBatchThreads, kShared, stream, true, arguments, codes);
}

constexpr int kAddThreads = 128;  // each has eight columns of a row

__global__ void __launch_bounds__(kAddThreads) add_parts_kernel(Fp8BatchArguments arguments) {
  winnow::cuda::release_successor();
  winnow::cuda::wait_for_predecessor();
  const BatchOutput& out = arguments.out;
  const int column = static_cast<int>(blockIdx.x * kAddThreads + threadIdx.x) * 8;
  if (column >= out.cols) {
    return;
  }
  const std::size_t at = std::size_t{blockIdx.y} * out.cols + column;
  const std::size_t part = static_cast<std::size_t>(arguments.rows) * out.cols;
  Eight sum = load_eight(arguments.sums + at);
  for (int i = 1; i < arguments.work.parts; ++i) {
    const Eight more = load_eight(arguments.sums + i * part + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sum.values[j] += more.values[j];
    }
  }
  if (out.kind == BatchOutput::Kind::bf16) {
    store_eight(static_cast<bf16*>(out.y) + at, sum);
    return;
  }
  float* const y = static_cast<float*>(out.y) + at;
  if (out.kind == BatchOutput::Kind::add) {
    const Eight before = load_eight(y);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sum.values[j] += before.values[j];
    }
  }
  store_eight(y, sum);
}

}  // namespace

void launch_fp8_batch_gemm(const Fp8BatchArguments& arguments, const CUtensorMap& codes,
                           int padded_rows, cudaStream_t stream) {
  switch (padded_rows) {
    case 128:
      return launch_for<128>(arguments, codes, stream);
    case 192:
      return launch_for<192>(arguments, codes, stream);
    default:
      return launch_for<256>(arguments, codes, stream);
  }
}

void launch_add_parts(const Fp8BatchArguments& arguments, cudaStream_t stream) {
  constexpr int kColumns = 8 * kAddThreads;
  const dim3 grid(static_cast<unsigned>((arguments.out.cols + kColumns - 1) / kColumns),
                  static_cast<unsigned>(arguments.rows));
  winnow::cuda::launch(add_parts_kernel, grid, kAddThreads, 0, stream, true, arguments);
}

}  // namespace winnow::ops::cuda
