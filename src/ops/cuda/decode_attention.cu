// A warp takes a run of pages and works alone: it copies them to shared memory several at a time,
// past the end of a row as well, and writes its part of each row. A second kernel merges the parts;
// that costs less than waiting in this one for the last part to arrive.
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

// Pages of a warp in shared memory: one being read, the others on their way.
__host__ __device__ constexpr int stages(int page_bytes) {
  return page_bytes <= 3072 ? 4 : 3;
}

// A warp's queries and pages.
__host__ __device__ constexpr int warp_bytes(int head_dim, int element_bytes, int group) {
  const int bytes = page_bytes(head_dim, element_bytes);
  return group * head_dim * int{sizeof(float)} + stages(bytes) * bytes;
}

// Page `number` of all rows', which is one of row `row` or of a later one. kNoPage when it holds no
// entry and, while the token is not taken, when taking it may change that page or its number.
__device__ std::uint32_t find_page(const DecodeArguments& arguments, int row, int number,
                                   bool token_taken) {
  const DecodeEntries& entries = arguments.entries;
  const DecodePlan::Row* rows = arguments.plan.rows;
  while (number >= rows[row].begin + RowParts::pages_of(rows[row])) {
    ++row;
  }
  const DecodePlan::Row& planned = rows[row];
  const std::size_t state_row = planned.state_row;
  const int j = number - planned.begin;
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
  static constexpr int kPageBytes = page_bytes(D, Codes::kBytes);
  static constexpr int kStages = stages(kPageBytes);

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
    pages_ = find(0, false);
    put_known();
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_query();
    const bool missing = lane_ < run_.count && pages_ == kNoPage;
    if (__any_sync(kAllLanes, missing)) {
      put_missing(missing);
    }
    for (int next = 0; next < run_.count; ++row_) {
      next = attend_row(next);
    }
  }

 private:
  // Page `first` + lane of the run.
  __device__ std::uint32_t find(int first, bool token_taken) const {
    const int i = first + lane_;
    return i < run_.count ? find_page(arguments_, row_, run_.begin + i, token_taken) : kNoPage;
  }

  // Starts with those of the first pages that are known.
  __device__ void put_known() {
#pragma unroll 1
    for (int i = 0; i < min(kStages, run_.count); ++i) {
      if (const std::uint32_t page = __shfl_sync(kAllLanes, pages_, i); page != kNoPage) {
        stream_.put(i, page);
      }
    }
  }

  // Finds the pages that were not known before the token was taken.
  __device__ void put_missing(bool missing) {
    const unsigned lanes = __ballot_sync(kAllLanes, missing);
    if (missing) {
      pages_ = find_page(arguments_, row_, run_.begin + lane_, true);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) {
      if ((lanes >> i & 1U) != 0) {
        stream_.put(i, __shfl_sync(kAllLanes, pages_, i));
      }
    }
  }

  // Page i of the run, which is asked for in order.
  __device__ std::uint32_t page(int i) {
    if (i % kWarpSize == 0) {
      pages_ = find(i, true);
    }
    return __shfl_sync(kAllLanes, pages_, i % kWarpSize);
  }

  // Starts to copy the queries of row_.
  __device__ void copy_query() const {
    const int width = arguments_.group * D;
    const float* from = arguments_.query + std::size_t(row_) * width;
#pragma unroll 1
    for (int i = 4 * lane_; i < width; i += 4 * kWarpSize) {
      __pipeline_memcpy_async(query_ + i, from + i, 16);
    }
    __pipeline_commit();
  }

  // The run's pages from `first` on that are row_'s. Returns where they end.
  __device__ int attend_row(int first) {
    const DecodePlan::Row planned = arguments_.plan.rows[row_];
    const int archived = __ldcg(arguments_.entries.archive_counts + planned.state_row);
    const int archive_end = planned.window_pages * kPageEntries + archived;
    const int begin = planned.begin - run_.begin;  // in the run
    const int end = min(begin + RowParts::pages_of(planned), run_.count);
    __pipeline_wait_prior(0);
    __syncwarp();
    attention_.begin(query_, arguments_.group, arguments_.scale);
    if (end < run_.count) {
      __syncwarp();  // the queries have been read
      ++row_;
      copy_query();
      --row_;
    }
    for (int next = first; next < end; ++next) {
      const int j = next - begin;
      const int last = j < planned.window_pages ? planned.window_entries : archive_end;
      const int entries = min(kPageEntries, last - j * kPageEntries);
      const std::byte* front = stream_.front();
      if (entries > 0) {
        attention_.attend(front, entries);
      }
      if (next + kStages < run_.count) {
        stream_.replace_front(page(next + kStages));
      } else {
        stream_.drop_front();
      }
    }
    const std::size_t part = RowParts::place(worker_, row_);
    const int group = arguments_.group;
    attention_.write(arguments_.plan.partial_out + part * group * D,
                     arguments_.plan.partial_sums + part * group, group);
    return end;
  }

  const DecodeArguments& arguments_;
  const int worker_;
  const int lane_;
  const DecodePlan::Run run_;
  float* query_;  // [group, D]
  PageStream<kPageBytes, kStages> stream_;
  WarpAttention<Codes, D> attention_;
  int row_;
  std::uint32_t pages_ = kNoPage;  // lane i: page i of the 32 that were looked up last
};

template <class Codes, int D>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  using Run = RunAttention<Codes, D>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ std::uint64_t barriers[kDecodeWarps][Run::kStages];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  Run(arguments, static_cast<int>(blockIdx.x) * kDecodeWarps + warp,
      memory + warp * warp_bytes(D, Codes::kBytes, arguments.group), barriers[warp])
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
