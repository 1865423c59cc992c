// All layers of a decode step in one kernel. Its linear layers are those of linear_rows: weights
// come without a pause, the ring bridges what the other warps do meanwhile. After q, k and v the
// output warps take the tokens into the cache, then the product warps attend, each its run of the
// plan, and merge the parts. Blocks wait for each other by one counter (RowsProgram::arrived).
#pragma once

#include "kvcache/cuda/append_decode.cuh"
#include "model/cuda/decode_step_kernels.h"
#include "ops/cuda/decode_merge.cuh"
#include "ops/cuda/decode_run.cuh"
#include "ops/cuda/linear_rows.cuh"

namespace winnow::model::cuda {

static_assert(kStepWorkers == ops::cuda::kProductWarps);

/// Codes as attention reads them and the format as append writes it.
struct Bf16Entries {
  using Codes = ops::cuda::Bf16Codes;
  using Format = ops::cuda::Bf16Format;
};
struct F8Entries {
  using Codes = ops::cuda::F8Codes;
  using Format = ops::cuda::F8Format;
};
struct I8Entries {
  using Codes = ops::cuda::I8Codes;
  using Format = ops::cuda::I8Format;
};

/// The output warps.
struct AppendTeam {
  static constexpr int kWarps = ops::cuda::kOutputWarps;
  static __device__ int threads() { return 32 * kWarps; }
  static __device__ int thread() {
    return static_cast<int>(threadIdx.x) - 32 * ops::cuda::kProductWarps;
  }
  static __device__ void sync() { ops::cuda::sync_named(ops::cuda::kOutputBarrier, 32 * kWarps); }
};

/// Takes this block's tokens and KV heads of a layer, once `arrivals` have come. By the output
/// warps.
template <class Entries, int D>
__device__ void append_tokens(const StepProgram& program, int layer, std::uint32_t arrivals) {
  constexpr int kMostVectors = ops::cuda::kMostGroup + 2;
  constexpr int kEach = (kMostVectors + AppendTeam::kWarps - 1) / AppendTeam::kWarps;
  const int block = static_cast<int>(blockIdx.x);
  if (block >= program.append_blocks) {
    return;
  }
  kvcache::cuda::DecodeAppend step = program.append;
  step.layer = layer;
  // In shared memory, where it takes no registers and is soon at hand.
  __shared__ kvcache::cuda::Projection projection;
  constexpr int kWords = sizeof(projection) / sizeof(std::uint32_t);
  static_assert(kWords <= 32 * AppendTeam::kWarps);
  if (AppendTeam::thread() < kWords) {
    reinterpret_cast<std::uint32_t*>(&projection)[AppendTeam::thread()] =
        reinterpret_cast<const std::uint32_t*>(program.projections + layer)[AppendTeam::thread()];
  }
  AppendTeam::sync();
  for (int unit = block; unit < step.batch * projection.kv_heads; unit += program.append_blocks) {
    kvcache::cuda::TokenAppend<typename Entries::Format, D, AppendTeam, kEach> append(
        program.cache, projection, step, unit % projection.kv_heads, unit / projection.kv_heads);
    if (unit == block) {
      if (AppendTeam::thread() == 0) {
        ops::cuda::wait_for_arrivals(program.rows.arrived, arrivals);
      }
      AppendTeam::sync();
    }
    append.take(projection, step);
  }
  ops::cuda::fence_bulk_copies();  // which will read the entries
  AppendTeam::sync();
  if (AppendTeam::thread() == 0) {
    ops::cuda::arrive_at(program.rows.arrived);
  }
}

/// Attention by the product warps.
template <class Entries, int D>
class StepAttention {
 public:
  using Codes = typename Entries::Codes;
  // Two tiles, and queries in shared memory where registers are short: there are 128 for a thread.
  using Tiles = ops::cuda::RunTiles<Codes, D, 2, (D > 80)>;

  /// memory [kStepWorkers, Tiles::warp_bytes()]: that of the inputs, which nobody needs meanwhile.
  __device__ StepAttention(const StepProgram& program, std::byte* memory,
                           typename Tiles::States* states)
      : program_(program),
        warp_(static_cast<int>(threadIdx.x) / 32),
        memory_(memory + warp_ * Tiles::warp_bytes(program.attention.group)),
        stream_(program.attention.entries.pool,
                memory_ + Tiles::query_bytes(program.attention.group), states[warp_]) {}

  /// Attends once the `arrivals` before append and append's own have come.
  __device__ void run(int layer, std::uint32_t arrivals) {
    if (layer == 0) {
      winnow::cuda::wait_for_predecessor();  // for the plan
    }
    ops::cuda::fence_bulk_copies();
    synchronize();  // all have read their inputs: pages may take their place
    const ops::cuda::DecodeArguments arguments = arguments_of(layer);
    const int worker = warp_ * program_.rows.blocks + static_cast<int>(blockIdx.x);
    arrivals += program_.append_blocks;
    ops::cuda::RunAttention<Codes, D, Tiles>(arguments, worker, memory_, stream_).run([&] {
      wait(arrivals);
      ops::cuda::fence_bulk_copies();  // which read what append has written
    });
    arrive();
    if (static_cast<int>(blockIdx.x) < program_.merge_blocks) {
      merge(arguments, worker, arrivals + program_.rows.blocks);
      arrive();
    }
  }

 private:
  static constexpr int kPartsAtOnce = 6;  // that a lane reads

  static __device__ void synchronize() {
    ops::cuda::sync_named(ops::cuda::kProductBarrier, 32 * ops::cuda::kProductWarps);
  }
  __device__ void wait(std::uint32_t arrivals) const {
    if (threadIdx.x == 0) {
      ops::cuda::wait_for_arrivals(program_.rows.arrived, arrivals);
    }
    synchronize();
  }
  __device__ void arrive() const {
    synchronize();
    if (threadIdx.x == 0) {
      ops::cuda::arrive_at(program_.rows.arrived);
    }
  }

  [[nodiscard]] __device__ ops::cuda::DecodeArguments arguments_of(int layer) const {
    ops::cuda::DecodeArguments arguments = program_.attention;
    const std::size_t rows = program_.cache.row(layer, 0, 0);
    arguments.entries.archive_pages += rows * arguments.entries.archive_stride;
    arguments.entries.archive_counts += rows;
    arguments.entries.window_pages += rows * arguments.entries.window_stride;
    arguments.plan.rows += layer * program_.plan_rows;
    arguments.plan.runs += layer * arguments.plan.workers;
    return arguments;
  }

  __device__ void merge(const ops::cuda::DecodeArguments& arguments, int worker,
                        std::uint32_t arrivals) const {
    bool waited = false;
    for (int first = 0; first < program_.merge_items; first += arguments.plan.workers) {
      const int item = first + worker;
      const ops::cuda::MergedItem own(arguments, D, min(item, program_.merge_items - 1));
      if (!waited) {
        wait(arrivals);
        waited = true;
      }
      if (item < program_.merge_items) {
        own.write(own.template merge<kPartsAtOnce>(0, 1));
      }
    }
  }

  const StepProgram& program_;
  int warp_;
  std::byte* memory_;
  typename Tiles::Stream stream_;
};

template <class Weight, int kBatches, class Entries, int D>
__global__ __launch_bounds__(ops::cuda::kRowsThreads, 1) void step_kernel(
    const __grid_constant__ StepProgram program,
    const __grid_constant__ ops::cuda::RowsMemory sizes) {
  using Attention = StepAttention<Entries, D>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ typename Attention::Tiles::States states[kStepWorkers];
  auto& shared = *reinterpret_cast<ops::cuda::RowsShared<kBatches>*>(memory);
  ops::cuda::initialize(shared);
  const ops::cuda::RowsRings rings = sizes.rings(memory);
  const ops::cuda::RowsProgram& rows = program.rows;
  // What arrives after linear layer n and before the next one.
  const auto arrivals = [&](int n) { return rows.arrivals_before(n) + rows.blocks; };
  const auto attends_after = [&](int n) { return n % rows.interval == 0 && n + 1 < rows.count; };
  const auto append = [&](int n) {
    if (attends_after(n)) {
      append_tokens<Entries, D>(program, n / rows.interval, arrivals(n));
    }
  };
  if (threadIdx.x < 32 * kStepWorkers) {
    Attention attention(program, rings.inputs, states);
    ops::cuda::Product<Weight, kBatches>(program.rows, shared, rings).run([&](int n) {
      if (attends_after(n)) {
        attention.run(n / rows.interval, arrivals(n));
      }
    });
  } else {
    ops::cuda::run_other_warps<Weight>(rows, shared, rings, append);
  }
}

template <class Weight, int kBatches, class Entries, int D>
void launch_step(const StepProgram& program, std::span<const ops::cuda::RowsLayer> layers,
                 cudaStream_t stream) {
  auto* kernel = step_kernel<Weight, kBatches, Entries, D>;
  const int pages =
      kStepWorkers * StepAttention<Entries, D>::Tiles::warp_bytes(program.attention.group);
  const ops::cuda::RowsMemory memory =
      ops::cuda::divide_memory<Weight, kBatches>(kernel, program.rows, layers, pages);
  winnow::cuda::launch(kernel, program.rows.blocks, ops::cuda::kRowsThreads, memory.bytes(), stream,
                       true, program, memory);
}

template <class Weight, class Entries, int D>
void launch_step_for_rows(const StepProgram& program, std::span<const ops::cuda::RowsLayer> layers,
                          cudaStream_t stream) {
  if (program.rows.rows > 8) {
    launch_step<Weight, 2, Entries, D>(program, layers, stream);
  } else {
    launch_step<Weight, 1, Entries, D>(program, layers, stream);
  }
}

template <class Weight, class Entries>
void launch_step_for_heads(const StepProgram& program, int head_dim,
                           std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch_step_for_rows<Weight, Entries, 64>(program, layers, stream);
    case 80:
      return launch_step_for_rows<Weight, Entries, 80>(program, layers, stream);
    case 96:
      return launch_step_for_rows<Weight, Entries, 96>(program, layers, stream);
    default:
      return launch_step_for_rows<Weight, Entries, 128>(program, layers, stream);
  }
}

template <class Weight>
void launch_step_for(const StepProgram& program, const StepKind& kind,
                     std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream) {
  switch (kind.entries) {
    case DType::bf16:
      return launch_step_for_heads<Weight, Bf16Entries>(program, kind.head_dim, layers, stream);
    case DType::f8e4m3:
      return launch_step_for_heads<Weight, F8Entries>(program, kind.head_dim, layers, stream);
    default:
      return launch_step_for_heads<Weight, I8Entries>(program, kind.head_dim, layers, stream);
  }
}

}  // namespace winnow::model::cuda
