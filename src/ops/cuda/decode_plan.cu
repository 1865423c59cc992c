// The plan of a decode step: one block per layer.
#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_page.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kPlanThreads = 1024;
constexpr int kLeastPages = 2;  // per run: what a part costs should not exceed what it saves
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Inclusive sums over a block's threads; `total` is that of all.
__device__ int block_scan(int x, int& total) {
  __shared__ int sums[kPlanThreads / kWarpSize];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int before = __shfl_up_sync(kAllLanes, x, step);
    x += lane >= step ? before : 0;
  }
  __syncthreads();  // the sums of an earlier call have been read
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

// A row's entries and tiles; where its tiles and runs are is left open. `named`: with the page that
// the token writes to.
__device__ DecodePlan::Row plan_row(const DecodeEntries& entries, int row, int tile_pages,
                                    bool named) {
  const int slot = entries.slots[row / entries.kv_heads];
  if (slot < 0) {
    return {.tiles = 1, .state_row = -1, .leaving = -1};
  }
  const int length = entries.lengths[slot];
  const int ring = entries.rings != nullptr ? entries.rings[slot] : entries.window + 1;
  DecodePlan::Row planned{};
  planned.state_row = slot * entries.kv_heads + row % entries.kv_heads;
  planned.window_entries = min(length, ring);
  planned.leaving = ring > 0 && length >= ring ? length % ring : -1;
  planned.archive_entries = entries.archive_counts[planned.state_row];
  planned.length = length;
  if (named && planned.leaving >= 0) {
    planned.leaving_page = entries.window_pages[planned.state_row * entries.window_stride +
                                                planned.leaving / kPageEntries];
  }
  const int pages = pages_for(planned.window_entries) + pages_for(planned.archive_entries);
  // A row without pages takes a place as well: so runs go from row to row without a look at them.
  planned.tiles = max(1, (pages + tile_pages - 1) / tile_pages);
  return planned;
}

// `tiles` cut into `runs` that differ by one at most.
struct Cut {
  long long tiles;
  long long runs;

  __device__ int begin(int run) const { return static_cast<int>(run * tiles / runs); }
  // The run that holds a tile.
  __device__ int run_of(int tile) const {
    return static_cast<int>(((tile + 1) * runs - 1) / tiles);
  }
};

__device__ DecodeEntries layer_entries(const PlanArguments& arguments, int layer) {
  const std::size_t rows = layer * arguments.layer_counts;
  DecodeEntries entries = arguments.entries;
  entries.archive_counts += rows;
  entries.archive_pages += rows * entries.archive_stride;
  entries.window_pages += rows * entries.window_stride;
  return entries;
}

__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(const __grid_constant__ PlanArguments arguments) {
  winnow::cuda::wait_for_predecessor();
  const DecodePlan::View& plan = arguments.plan;
  const DecodeEntries entries = layer_entries(arguments, static_cast<int>(blockIdx.x));
  DecodePlan::Row* rows = plan.rows + blockIdx.x * arguments.most_rows;
  DecodePlan::Run* runs = plan.runs + std::size_t{blockIdx.x} * plan.workers;
  const int thread = static_cast<int>(threadIdx.x);

  int tiles = 0;
  for (int first = 0; first < plan.batch_rows; first += kPlanThreads) {
    const int row = first + thread;
    DecodePlan::Row planned{};
    if (row < plan.batch_rows) {
      planned = plan_row(entries, row, arguments.tile_pages, plan.takes_tokens);
    }
    int total = 0;
    planned.begin = tiles + block_scan(planned.tiles, total) - planned.tiles;
    if (row < plan.batch_rows) {
      rows[row] = planned;
    }
    tiles += total;
  }
  __syncthreads();
  const int least = max(1, kLeastPages / arguments.tile_pages);
  const Cut cut{tiles, min(plan.workers, max(1, tiles / least))};
  for (int row = thread; row < plan.batch_rows; row += kPlanThreads) {
    DecodePlan::Row& planned = rows[row];
    planned.first_run = cut.run_of(planned.begin);
    planned.runs = cut.run_of(planned.begin + planned.tiles - 1) - planned.first_run + 1;
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
  if (plan.takes_tokens) {
    __syncthreads();
    DecodePlan::Page* first =
        plan.first_pages + std::size_t{blockIdx.x} * plan.workers * DecodePlan::kFirstPages;
    for (int i = thread; i < cut.runs * DecodePlan::kFirstPages; i += kPlanThreads) {
      const DecodePlan::Run run = runs[i / DecodePlan::kFirstPages];
      const int page = i % DecodePlan::kFirstPages;
      if (const int tile = page / arguments.tile_pages; tile < run.count) {
        first[i] = find_page(entries, rows, run.row, run.begin + tile, page % arguments.tile_pages,
                             arguments.tile_pages);
      }
    }
  }
  __threadfence();  // attend() reads this before its own predecessor is complete
}

}  // namespace

void launch_plan(const PlanArguments& arguments, cudaStream_t stream) {
  winnow::cuda::launch(plan_kernel, arguments.layers, kPlanThreads, 0, stream, true, arguments);
}

}  // namespace winnow::ops::cuda
