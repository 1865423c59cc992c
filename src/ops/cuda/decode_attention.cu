// A block takes a run of pages, its warps in turn one page each, which they copy to shared memory
// several pages ahead, past the end of a row as well. At the end of a row the warps' parts are put
// together; a row that lies in one run whole is done then, the parts of others are merged by a
// second kernel. That costs less than waiting here for the last part to arrive.
#include <cuda_pipeline.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/decode_output.cuh"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarpSize;
constexpr int kListed = 4 * kThreads;  // pages that are looked up at a time
constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;

constexpr int page_bytes(int head_dim, int element_bytes) {
  return PageAddress{head_dim, element_bytes}.page_bytes();
}

// Pages of a warp in shared memory: one being read, the others on their way.
constexpr int stages(int page_bytes) {
  return page_bytes <= 3072 ? 4 : 3;
}

// A block's pages, and its warps' parts of a row.
constexpr int shared_bytes(int head_dim, int element_bytes, int group) {
  const int bytes = page_bytes(head_dim, element_bytes);
  return kDecodeWarps * (stages(bytes) * bytes + group * head_dim * int{sizeof(float)});
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

// A warp's pages on their way from the pool to shared memory.
template <int kPageBytes, int kStages>
class PageStream {
 public:
  __device__ PageStream(const std::byte* pool, std::byte* memory)
      : pool_(pool), memory_(memory), lane_(static_cast<int>(threadIdx.x) % kWarpSize) {}

  __device__ void copy(std::uint32_t page, int stage) const {
    if (page == kNoPage) {
      return;
    }
    const std::byte* from = pool_ + std::size_t{page} * kPageBytes + lane_ * 16;
    std::byte* to = memory_ + stage * kPageBytes + lane_ * 16;
#pragma unroll
    for (int at = 0; at < kPageBytes; at += kWarpSize * 16) {
      if (at + kWarpSize * 16 <= kPageBytes || lane_ * 16 < kPageBytes - at) {
        __pipeline_memcpy_async(to + at, from + at, 16);
      }
    }
  }
  // What has been copied since the last call is one page, as far as front() counts.
  static __device__ void commit() {
    __pipeline_commit();
  }

  // The next page; waits until it is there.
  __device__ const std::byte* front() const {
    __pipeline_wait_prior(kStages - 1);
    __syncwarp();
    return memory_ + stage_ * kPageBytes;
  }
  // Puts `page` where the front page was, which has been read.
  __device__ void replace_front(std::uint32_t page) {
    __syncwarp();
    copy(page, stage_);
    commit();
    stage_ = stage_ + 1 < kStages ? stage_ + 1 : 0;
  }
  __device__ void restart() {
    stage_ = 0;
  }

 private:
  const std::byte* pool_;
  std::byte* memory_;
  int lane_;
  int stage_ = 0;
};

template <class Codes, int D>
class BlockAttention {
 public:
  __device__ BlockAttention(const DecodeArguments& arguments, std::byte* memory,
                            std::uint32_t* listed, float2* sums)
      : arguments_(arguments),
        run_(arguments.plan.runs[blockIdx.x]),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        listed_(listed),
        outs_(reinterpret_cast<float*>(memory + kDecodeWarps * kWarpBytes)),
        sums_(sums),
        stream_(arguments.entries.pool, memory + warp_ * kWarpBytes),
        row_(run_.row) {}

  __device__ void run() {
    if (run_.count == 0) {
      return;
    }
    list_pages(0, false);
    const unsigned missing = start_copies(0);
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_missing(missing);
    attend_listed(0);
    for (int first = kListed; first < run_.count; first += kListed) {
      __syncthreads();  // all pages of the list have been started
      list_pages(first, true);
      start_copies(first);
      attend_listed(first);
    }
  }

 private:
  static constexpr int kPageBytes = page_bytes(D, Codes::kBytes);
  static constexpr int kStages = stages(kPageBytes);
  static constexpr int kWarpBytes = kStages * kPageBytes;

  // Looks up the run's pages from `first` on.
  __device__ void list_pages(int first, bool token_taken) {
    const int count = min(kListed, run_.count - first);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      listed_[i] = find_page(arguments_, row_, run_.begin + first + i, token_taken);
    }
    __syncthreads();
    listed_first_ = first;
    listed_last_ = first + count;
  }

  // Starts to copy the warp's first pages of those listed; returns which of the stages lack theirs.
  __device__ unsigned start_copies(int first) {
    unsigned missing = 0;
    stream_.restart();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      const int i = first + warp_ + stage * kDecodeWarps;
      if (i < listed_last_) {
        const std::uint32_t page = listed_[i - first];
        missing |= page == kNoPage ? 1U << stage : 0U;
        stream_.copy(page, stage);
      }
      stream_.commit();
    }
    return missing;
  }

  // Copies those pages, once the token has been taken.
  __device__ void copy_missing(unsigned missing) {
    if (missing == 0) {
      return;
    }
    for (int stage = 0; stage < kStages; ++stage) {
      if ((missing >> stage & 1U) != 0) {
        stream_.copy(page(warp_ + stage * kDecodeWarps), stage);
      }
    }
    stream_.commit();
    __pipeline_wait_prior(0);
  }

  // Page i of the run, once the token has been taken; kNoPage past the listed ones.
  __device__ std::uint32_t page(int i) const {
    if (i >= listed_last_) {
      return kNoPage;
    }
    const std::uint32_t found = listed_[i - listed_first_];
    return found != kNoPage ? found : find_page(arguments_, row_, run_.begin + i, true);
  }

  __device__ void attend_listed(int first) {
    int next = first + warp_;  // the warp's next page
    while (first < listed_last_) {
      const DecodePlan::Row planned = arguments_.plan.rows[row_];
      const int row_begin = planned.begin - run_.begin;
      const int row_end = min(row_begin + RowParts::pages_of(planned), run_.count);
      const int end = min(row_end, listed_last_);
      if (first == max(row_begin, 0)) {
        begin_row();
      }
      attend_row(planned, next, end);
      if (end == row_end) {
        finish_row(planned);
        ++row_;
      }
      first = end;
    }
  }

  __device__ void begin_row() {
    const std::size_t width = std::size_t(arguments_.group) * D;
    attention_.begin(arguments_.query + row_ * width, arguments_.group, arguments_.scale);
  }

  // The warp's pages from `next` on that come before `end`, all of one row.
  __device__ void attend_row(const DecodePlan::Row& planned, int& next, int end) {
    const int archived = __ldcg(arguments_.entries.archive_counts + planned.state_row);
    const int archive_end = planned.window_pages * kPageEntries + archived;
    for (; next < end; next += kDecodeWarps) {
      const int j = run_.begin + next - planned.begin;
      const int last = j < planned.window_pages ? planned.window_entries : archive_end;
      const int entries = min(kPageEntries, last - j * kPageEntries);
      const std::byte* front = stream_.front();
      if (entries > 0) {
        attention_.attend(front, entries);
      }
      stream_.replace_front(page(next + kStages * kDecodeWarps));
    }
  }

  // Puts the warps' parts of a row together.
  __device__ void finish_row(const DecodePlan::Row& planned) {
    const int group = arguments_.group;
    const int quads = group * (D / 4);
    attention_.write(outs_ + warp_ * group * D, sums_ + warp_ * kMostGroup, group);
    __syncthreads();
    const RowParts parts(planned, row_, run_.each);
    for (int quad = static_cast<int>(threadIdx.x); quad < quads; quad += kThreads) {
      const int head = quad / (D / 4);
      Part part;
#pragma unroll
      for (int warp = 0; warp < kDecodeWarps; ++warp) {
        const float2 sums = sums_[warp * kMostGroup + head];
        part.add({sums.x, sums.y, reinterpret_cast<const float4*>(outs_)[warp * quads + quad]});
      }
      if (parts.count == 1) {
        write_output(arguments_, std::size_t(row_) * quads + quad, part);
      } else {
        write_part(part, quad, quads);
      }
    }
    __syncthreads();  // the warps' parts may be overwritten
  }

  __device__ void write_part(const Part& part, int quad, int quads) {
    const std::size_t place = RowParts::place(static_cast<int>(blockIdx.x), row_);
    reinterpret_cast<float4*>(arguments_.plan.partial_out)[place * quads + quad] = part.out;
    if (quad % (D / 4) == 0) {
      arguments_.plan.partial_sums[place * arguments_.group + quad / (D / 4)] = {part.reference,
                                                                                 part.sum};
    }
  }

  const DecodeArguments& arguments_;
  const DecodePlan::Run run_;
  const int warp_;
  std::uint32_t* listed_;  // pages [listed_first_, listed_last_) of the run
  float* outs_;            // [warps, group, D]
  float2* sums_;           // [warps, kMostGroup]
  PageStream<kPageBytes, kStages> stream_;
  WarpAttention<Codes, D> attention_;
  int row_;
  int listed_first_ = 0;
  int listed_last_ = 0;
};

template <class Codes, int D>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ std::uint32_t listed[kListed];
  __shared__ float2 sums[kDecodeWarps * kMostGroup];
  BlockAttention<Codes, D>(arguments, memory, listed, sums).run();
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
  return shared_bytes(head_dim, static_cast<int>(dtype_size(format)), group);
}

}  // namespace

int resident_blocks(DType format, int head_dim, int group) {
  const Kernel kernel = kernel_for(format, head_dim);
  const int shared = shared_bytes(format, head_dim, group);
  int blocks = 0;
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shared_bytes(format, head_dim, kMostGroup)),
                      "shared memory of decode attention");
  winnow::cuda::check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared),
      "blocks of decode attention");
  return blocks * winnow::cuda::multiprocessor_count();
}

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  winnow::cuda::launch(kernel_for(format, head_dim), arguments.plan.workers, kThreads,
                       shared_bytes(format, head_dim, arguments.group), stream, true, arguments);
}

}  // namespace winnow::ops::cuda
