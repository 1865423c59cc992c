// The plan of a decode step: one block per layer.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode/decode_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kPlanThreads = 1024;
constexpr int kLeastRunPages = 2;  // per run: a part must not cost more than it saves
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Inclusive sums over a block's threads; `total` receives the sum of all.
__device__ int block_scan(int x, int& total) {
  __shared__ int sums[kPlanThreads / kWarpSize];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int before = __shfl_up_sync(kAllLanes, x, step);
    x += lane >= step ? before : 0;
  }
  __syncthreads();  // wait until the sums of an earlier call have been read
  if (lane == kWarpSize - 1) {
    sums[warp] = x;
  }
  __syncthreads();
  total = 0;
  for (int w = 0; w < kPlanThreads / kWarpSize; ++w) {
    x += w < warp ? sums[w] : 0;
    total += sums[w];
  }
  return x;
}

// The pages of a row that is about to receive a token; positions of tiles and runs are not set.
__device__ DecodePlan::Row plan_row(const DecodeEntries& entries, const std::int32_t* counts,
                                    int layer, int row, int tile_pages) {
  const int slot = entries.slots[row / entries.kv_heads];
  if (slot < 0) {
    return {.state_row = -1, .new_token_page = -1};
  }
  const int length = entries.lengths[slot];
  const int reach = entries.reaches != nullptr ? entries.reaches[layer] : 0;
  const int ring = reach > 0                  ? reach
                   : entries.rings != nullptr ? entries.rings[slot]
                                              : entries.window + 1;
  DecodePlan::Row planned{};
  planned.state_row = slot * entries.kv_heads + row % entries.kv_heads;
  planned.window_entries = reach > 0 && entries.chunked ? length % ring + 1 : min(length + 1, ring);
  planned.archive_pages = pages_for(counts[planned.state_row] + (length + 1 > ring ? 1 : 0));
  const int pages = pages_for(planned.window_entries) + planned.archive_pages;
  planned.tiles = (pages + tile_pages - 1) / tile_pages;
  planned.new_token_page = ring > 0 ? length % ring / kPageEntries : -1;
  return planned;
}

// `tiles` divided into `runs` runs whose sizes differ by at most one.
struct Cut {
  long long tiles;
  long long runs;

  __device__ int begin(int run) const { return static_cast<int>(run * tiles / runs); }
  // The run that holds a tile.
  __device__ int run_of(int tile) const {
    return static_cast<int>(((tile + 1) * runs - 1) / tiles);
  }
};

__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(const __grid_constant__ PlanArguments arguments) {
  winnow::cuda::wait_for_predecessor();
  const DecodePlan::View& plan = arguments.plan;
  const std::int32_t* counts =
      arguments.entries.archive_counts + blockIdx.x * arguments.layer_counts;
  DecodePlan::Row* rows = plan.rows + blockIdx.x * arguments.most_rows;
  DecodePlan::Run* runs = plan.runs + std::size_t{blockIdx.x} * plan.workers;
  const int thread = static_cast<int>(threadIdx.x);

  __shared__ int longest;
  if (thread == 0) {
    longest = 0;
  }
  __syncthreads();
  int tiles = 0;
  for (int first = 0; first < plan.batch_rows; first += kPlanThreads) {
    const int row = first + thread;
    DecodePlan::Row planned{};
    if (row < plan.batch_rows) {
      planned = plan_row(arguments.entries, counts, static_cast<int>(blockIdx.x), row,
                         arguments.tile_pages);
    }
    int total = 0;
    planned.begin = tiles + block_scan(planned.tiles, total) - planned.tiles;
    if (row < plan.batch_rows) {
      rows[row] = planned;
      atomicMax(&longest, planned.tiles);
    }
    tiles += total;
  }
  __syncthreads();
  if (thread == 0) {
    arguments.reports[blockIdx.x] = {tiles, longest};
  }
  const int least = max(1, kLeastRunPages / arguments.tile_pages);
  const Cut cut{tiles, min(plan.workers, max(1, tiles / least))};
  for (int row = thread; row < plan.batch_rows; row += kPlanThreads) {
    DecodePlan::Row& planned = rows[row];
    if (planned.tiles > 0) {
      planned.first_run = cut.run_of(planned.begin);
      planned.runs = cut.run_of(planned.begin + planned.tiles - 1) - planned.first_run + 1;
    }
  }
  for (int worker = thread; worker < plan.workers; worker += kPlanThreads) {
    if (worker >= cut.runs) {
      runs[worker] = {};
      continue;
    }
    const int begin = cut.begin(worker);
    int low = 0;
    int high = plan.batch_rows;  // the last row that begins at or before the run
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (rows[middle].begin <= begin ? low : high) = middle;
    }
    runs[worker] = {low, begin, cut.begin(worker + 1) - begin};
  }
  __threadfence();  // attend() reads the plan before its own predecessor is complete
}

}  // namespace

void launch_plan(const PlanArguments& arguments, cudaStream_t stream) {
  winnow::cuda::launch(plan_kernel, arguments.layers, kPlanThreads, 0, stream, true, arguments);
}

}  // namespace winnow::ops::cuda
