// Split-K's second step: reduces the parts of each row's attention. Rows without parts get zeros.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode/decode_parts.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kMostThreads = 256;
// A thread takes four channels; a block may take all heads of a group.
static_assert(kMostOwnGroup * kMostOwnHeadDim <= 4 * kMostThreads);
constexpr int kAtOnce = 6;      // parts that a thread reads at a time
constexpr int kMostBlocks = 8;  // per multiprocessor and group of heads

// Reduces the parts of a quad's `step` slices into slice 0's part. All threads of the block call
// it, each with its own slice's part; `memory` has room for one part per thread.
__device__ void reduce_slices(Part* memory, const Part& own, int slice, int step, int quads) {
  const int thread = static_cast<int>(threadIdx.x);
  memory[thread] = own;
  for (int others = step; others > 1;) {  // halve the slices
    const int half = (others + 1) / 2;
    __syncthreads();
    if (slice + half < others) {
      const Part pair[2] = {memory[thread], memory[thread + half * quads]};
      memory[thread] = reduce(pair);
    }
    others = half;
  }
}

// Heads [blockIdx.y * heads, + heads) of rows. A thread reduces four channels of every step-th part
// of a row. `Rotated`: D if entries are rotated, else 0.
template <int Rotated>
class HeadsReduction {
 public:
  // Reads nothing that the predecessor writes.
  __device__ HeadsReduction(const DecodeArguments& arguments, int head_quads, int heads)
      : arguments_(arguments),
        head_quads_(head_quads),
        heads_(heads),
        quads_(heads * head_quads),
        step_(static_cast<int>(blockDim.x) / quads_),
        slice_(static_cast<int>(threadIdx.x) / quads_) {
    // In the parts' memory order.
    const int within = static_cast<int>(threadIdx.x) % quads_;
    const int quarter = within % 4;
    const int quad = within / (4 * heads);  // quad within its quarter
    head_ = static_cast<int>(blockIdx.y) * heads + within % (4 * heads) / 4;
    head_quad_ = quarter * (head_quads / 4) + quad;
    sums_ = arguments.plan.partial_sums + head_;
    outs_ = reinterpret_cast<const float4*>(arguments.plan.partial_out) +
            part_place(arguments.group, head_, quarter, quad);
  }

  // All threads of the block call it.
  __device__ void reduce_row(int row, const DecodePlan::Row& planned) const {
    __shared__ Part slices[kMostThreads];
    reduce_slices(slices, reduce_own_parts(row, planned), slice_, step_, quads_);
    const Part& reduced = slices[threadIdx.x];  // if slice_ is 0
    if constexpr (Rotated > 0) {
      write_heads_rotated_back(row, reduced);
    } else if (slice_ == 0) {
      write_output(arguments_, row * row_quads() + head_ * head_quads_ + head_quad_,
                   output_of(reduced));
    }
  }

 private:
  [[nodiscard]] __device__ std::size_t row_quads() const {
    return std::size_t(arguments_.group) * head_quads_;
  }

  // The thread's slice of the parts.
  [[nodiscard]] __device__ Part reduce_own_parts(int row, const DecodePlan::Row& planned) const {
    const std::size_t first_part = part_of(planned.first_run, row);
    Part read[kAtOnce + 1];  // the last one: the sum so far
    if (slice_ == 0 && arguments_.entries.open_scores != nullptr && planned.state_row >= 0) {
      read[kAtOnce] = open_part(arguments_, row, head_, head_quads_, head_quad_);
    }
    for (int first = slice_; first < planned.runs && slice_ < step_; first += kAtOnce * step_) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        read[i] = {};
        if (const int p = first + i * step_; p < planned.runs) {
          const std::size_t place = first_part + p;
          const float2 own = __ldcg(sums_ + place * arguments_.group);
          read[i] = {own.x, own.y, __ldcg(outs_ + place * row_quads())};
        }
      }
      read[kAtOnce] = reduce(read);
    }
    return read[kAtOnce];
  }

  __device__ void write_heads_rotated_back(int row, const Part& reduced) const {
    __shared__ __align__(16) float rotated[4 * kMostThreads];
    const int first = static_cast<int>(blockIdx.y) * heads_;
    if (slice_ == 0) {
      reinterpret_cast<float4*>(rotated)[(head_ - first) * head_quads_ + head_quad_] =
          output_of(reduced);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x) / kWarpSize; i < heads_;
         i += static_cast<int>(blockDim.x) / kWarpSize) {
      write_rotated_back<Rotated>(arguments_, rotated + i * Rotated,
                                  static_cast<std::size_t>(row) * arguments_.group + first + i);
    }
  }

  const DecodeArguments& arguments_;
  const int head_quads_;
  const int heads_;
  const int quads_;
  const int step_;   // slices of a row's parts
  const int slice_;  // the thread's
  int head_;
  int head_quad_;
  const float2* sums_;
  const float4* outs_;
};

// Block (r, h): heads [h, h + 1) * `heads` of rows r, r + gridDim.x ...
template <int Rotated>
__global__ void __launch_bounds__(kMostThreads)
    splitk_reduce_kernel(const __grid_constant__ DecodeArguments arguments, int head_quads,
                         int heads) {
  winnow::cuda::release_successor();
  const DecodePlan::View& plan = arguments.plan;
  const bool has_whole_rows = writes_whole_rows(arguments, Rotated > 0);
  const HeadsReduction<Rotated> reduction(arguments, head_quads, heads);
  int row = static_cast<int>(blockIdx.x);
  DecodePlan::Row planned = plan.rows[row];
  winnow::cuda::wait_for_predecessor();
  while (true) {
    if (planned.runs != 1 || !has_whole_rows) {
      reduction.reduce_row(row, planned);
    }
    row += static_cast<int>(gridDim.x);
    if (row >= plan.batch_rows) {
      return;
    }
    planned = plan.rows[row];
    __syncthreads();  // all threads have read the memory that the row before shared
  }
}

}  // namespace

void launch_splitk_reduce(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                          cudaStream_t stream) {
  const int rows = arguments.plan.batch_rows;
  // With few rows, each row has many parts: a block per head.
  const bool few = rows * arguments.group <= 2 * winnow::cuda::multiprocessor_count();
  const int heads = few ? 1 : arguments.group;
  const int quads = heads * head_dim / 4;
  // As many threads as there are parts to read: with many rows, each has few parts.
  const int parts = arguments.plan.workers / rows + 2;
  const int slices = (parts + kAtOnce - 1) / kAtOnce;
  const int threads = std::min(kMostThreads, (slices * quads + 31) / 32 * 32);
  const auto run = [&](auto* kernel) {
    const dim3 grid(std::min(rows, kMostBlocks * winnow::cuda::multiprocessor_count()),
                    arguments.group / heads);
    winnow::cuda::launch(kernel, grid, threads, 0, stream, true, arguments, head_dim / 4, heads);
  };
  if (format == EntryFormat::q4) {
    with_head_dim(head_dim, [&]<int D>() { run(splitk_reduce_kernel<D>); });
  } else {
    run(splitk_reduce_kernel<0>);
  }
}

}  // namespace winnow::ops::cuda
