// A warp takes a run of tiles and works alone: it copies their pages to shared memory, several
// tiles ahead, past the end of a row as well, and writes its part of each row. A second kernel
// merges the parts; that costs less than waiting in this one for the last part to arrive.
#include "base/cuda/launch.cuh"
#include "ops/cuda/page_stream.cuh"
#include "ops/cuda/row_parts.cuh"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarpSize;

__host__ __device__ constexpr int page_bytes(int head_dim, int element_bytes) {
  return PageAddress{head_dim, element_bytes}.page_bytes();
}

// Tiles of a warp in shared memory: one being read, the others on their way.
constexpr int kStages = 3;

// A warp's queries and pages.
__host__ __device__ constexpr int warp_bytes(int head_dim, int element_bytes, int group) {
  const int tile_bytes = tile_pages(head_dim) * page_bytes(head_dim, element_bytes);
  return group * head_dim * int{sizeof(float)} + kStages * tile_bytes;
}

// Page `p` of tile `tile` of all rows', which is one of row `row` or of a later one. kNoPage when
// there is none or it holds no entry and, while the token is not taken, when taking it may change
// that page or its number.
template <int kTilePages>
__device__ std::uint32_t find_page(const DecodeArguments& arguments, int row, int tile, int p,
                                   bool token_taken) {
  const DecodeEntries& entries = arguments.entries;
  const DecodePlan::Row* rows = arguments.plan.rows;
  while (tile >= rows[row].begin + rows[row].tiles) {
    ++row;
  }
  const DecodePlan::Row& planned = rows[row];
  const std::size_t state_row = planned.state_row;
  const int j = (tile - planned.begin) * kTilePages + p;
  const int archived = j - planned.window_pages;
  if (archived < 0) {
    return token_taken || j != planned.written
               ? __ldcg(entries.window_pages + state_row * entries.window_stride + j)
               : kNoPage;
  }
  const bool last = archived >= planned.archive_pages - 1;
  if (last &&
      (!token_taken || __ldcg(entries.archive_counts + state_row) <= archived * kPageEntries)) {
    return kNoPage;
  }
  return __ldcg(entries.archive_pages + state_row * entries.archive_stride + archived);
}

template <class Codes, int D>
class RunAttention {
 public:
  __device__ RunAttention(const DecodeArguments& arguments, int worker, std::byte* memory,
                          std::uint64_t* barriers)
      : arguments_(arguments),
        worker_(worker),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        run_(arguments.plan.runs[worker]),
        query_(reinterpret_cast<float*>(memory)),
        stream_(arguments.entries.pool, memory + arguments.group * D * sizeof(float), barriers),
        row_(run_.row) {}

  __device__ void run() {
    if (run_.count == 0) {
      return;
    }
    look_up(0, false);
    put_first_tiles(pages_ != kNoPage);
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_query(row_);
    if (__any_sync(kAllLanes, missing())) {
      const bool was_missing = missing();
      look_up(0, true);
      put_first_tiles(was_missing);
    }
    for (int next = 0; next < run_.count; ++row_) {
      next = attend_row(next);
    }
  }

 private:
  static constexpr int kTilePages = tile_pages(D);
  static constexpr int kLookedUp = kWarpSize / kTilePages;  // tiles

  // Looks up the pages of the run's tiles [first, first + kLookedUp).
  __device__ void look_up(int first, bool token_taken) {
    const int tile = first + lane_ / kTilePages;
    pages_ = tile < run_.count ? find_page<kTilePages>(arguments_, row_, run_.begin + tile,
                                                       lane_ % kTilePages, token_taken)
                               : kNoPage;
  }
  // Whether the lane's page, of those looked up first, is none or not known yet.
  __device__ bool missing() const { return pages_ == kNoPage && lane_ < run_.count * kTilePages; }

  // Puts those of the first kStages tiles' pages into the stages whose lanes want it.
  __device__ void put_first_tiles(bool wanted) {
    const unsigned lanes = __ballot_sync(kAllLanes, wanted);
#pragma unroll 1
    for (int i = 0; i < min(kStages, run_.count) * kTilePages; ++i) {
      if ((lanes >> i & 1U) != 0) {
        stream_.put(i / kTilePages, i % kTilePages, __shfl_sync(kAllLanes, pages_, i));
      }
    }
  }

  // Puts the run's tile `tile`, which comes next in order, in the place of the front one.
  __device__ void replace_front(int tile) {
    if (tile < run_.count) {
      if (tile % kLookedUp == 0) {
        look_up(tile, true);
      }
      __syncwarp();  // every lane has read the front
#pragma unroll
      for (int p = 0; p < kTilePages; ++p) {
        const int lane = tile % kLookedUp * kTilePages + p;
        stream_.put(stream_.stage(), p, __shfl_sync(kAllLanes, pages_, lane));
      }
    }
    stream_.drop_front();
  }

  // Starts to copy the queries of a row.
  __device__ void copy_query(int row) const {
    const int width = arguments_.group * D;
    const float* from = arguments_.query + std::size_t(row) * width;
#pragma unroll 1
    for (int i = 4 * lane_; i < width; i += 4 * kWarpSize) {
      __pipeline_memcpy_async(query_ + i, from + i, 16);
    }
    __pipeline_commit();
  }

  // The run's tiles from `first` on that are row_'s. Returns where they end.
  __device__ int attend_row(int first) {
    const DecodePlan::Row planned = arguments_.plan.rows[row_];
    const int archived = __ldcg(arguments_.entries.archive_counts + planned.state_row);
    const int begin = planned.begin - run_.begin;  // in the run
    const int end = min(begin + planned.tiles, run_.count);
    __pipeline_wait_prior(0);
    __syncwarp();
    attention_.begin(query_, arguments_.group, arguments_.scale);
    if (end < run_.count) {
      __syncwarp();  // every lane has read the queries
      copy_query(row_ + 1);
    }
    for (int next = first; next < end; ++next) {
      int entries[kTilePages];
      int most = 0;
#pragma unroll
      for (int p = 0; p < kTilePages; ++p) {
        entries[p] = entries_in(planned, archived, (next - begin) * kTilePages + p);
        most = max(most, entries[p]);
      }
      const std::byte* front = stream_.front();
      if (most > 0) {
        attention_.attend(front, entries);
      }
      replace_front(next + kStages);
    }
    const std::size_t part = RowParts::place(worker_, row_);
    const int group = arguments_.group;
    attention_.write(
        reinterpret_cast<float4*>(arguments_.plan.partial_out) + part * group * (D / 4),
        arguments_.plan.partial_sums + part * group, group);
    return end;
  }

  // Entries in page j of a row, none or less when it is empty or missing.
  static __device__ int entries_in(const DecodePlan::Row& planned, int archived, int j) {
    const int left = j < planned.window_pages
                         ? planned.window_entries - j * kPageEntries
                         : archived - (j - planned.window_pages) * kPageEntries;
    return min(kPageEntries, left);
  }

  const DecodeArguments& arguments_;
  const int worker_;
  const int lane_;
  const DecodePlan::Run run_;
  float* query_;  // [group, D]
  PageStream<page_bytes(D, Codes::kBytes), kTilePages, kStages> stream_;
  WarpAttention<Codes, D, kTilePages> attention_;
  int row_;
  std::uint32_t pages_ = kNoPage;  // those that were looked up last, one per lane
};

template <class Codes, int D>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ std::uint64_t barriers[kDecodeWarps][kStages];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  RunAttention<Codes, D>(arguments, static_cast<int>(blockIdx.x) * kDecodeWarps + warp,
                         memory + warp * warp_bytes(D, Codes::kBytes, arguments.group),
                         barriers[warp])
      .run();
}

using Kernel = void (*)(DecodeArguments);

template <class Codes>
Kernel kernel_for(int head_dim) {
  switch (head_dim) {
    case 64:
      return attention_kernel<Codes, 64>;
    case 80:
      return attention_kernel<Codes, 80>;
    case 96:
      return attention_kernel<Codes, 96>;
    default:
      return attention_kernel<Codes, 128>;
  }
}

Kernel kernel_for(DType format, int head_dim) {
  switch (format) {
    case DType::bf16:
      return kernel_for<Bf16Codes>(head_dim);
    case DType::f8e4m3:
      return kernel_for<F8Codes>(head_dim);
    default:
      return kernel_for<I8Codes>(head_dim);
  }
}

int shared_bytes(DType format, int head_dim, int group) {
  return kDecodeWarps * warp_bytes(head_dim, static_cast<int>(dtype_size(format)), group);
}

}  // namespace

int resident_workers(DType format, int head_dim, int group) {
  const Kernel kernel = kernel_for(format, head_dim);
  const int shared = shared_bytes(format, head_dim, group);
  int blocks = 0;
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shared_bytes(format, head_dim, kMostGroup)),
                      "shared memory of decode attention");
  winnow::cuda::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared),
      "blocks of decode attention");
  return blocks * winnow::cuda::multiprocessor_count() * kDecodeWarps;
}

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  winnow::cuda::launch(kernel_for(format, head_dim), arguments.plan.workers / kDecodeWarps,
                       kThreads, shared_bytes(format, head_dim, arguments.group), stream, true,
                       arguments);
}

}  // namespace winnow::ops::cuda
