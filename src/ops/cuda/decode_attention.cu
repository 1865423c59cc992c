// A block takes a run of a row's pages, its warps in turn one page each, which they copy to shared
// memory several pages ahead. Lane 4 r + c, r < 8 and c < 4, of the products [16, 16] x [16, 8]:
//   scores [query head, entry] = queries x keys: the lane reads a quarter (c) of the channels of
//     entries r and r + 8. Channels may be multiplied in any order, so what the lane has read is
//     its operand.
//   output [query head, channel] = weights x values: the lane reads an eighth (r) of the channels
//   of
//     entries 2c, 2c + 1, 2c + 8 and 2c + 9, whose weights are where the first product left them.
// A group has at most 8 query heads, yet the left operand has 16 rows: rows 8 to 15 hold what
// rounding to 16 bits took from rows 0 to 7, at no cost.
#include <cuda_pipeline.h>

#include <cmath>

#include "base/cuda/device.h"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/kv_codes.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kLeastPages = 8;  // per worker: fewer would spend more on the merge than they save
constexpr int kPlanThreads = 1024;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ int pages_for(int entries) {
  return (entries + kPageEntries - 1) / kPageEntries;
}

// One row's pages: those of its archive, then those of its window.
struct Row {
  const std::uint32_t* archive;
  const std::uint32_t* window;
  int archive_count;
  int window_count;
  int archive_pages;

  __device__ Row(const DecodeEntries& entries, int row)
      : archive(entries.archive_pages + row * entries.archive_stride),
        window(entries.window_pages + row * entries.window_stride),
        archive_count(entries.archive_counts[row]),
        window_count(entries.window_counts[row]),
        archive_pages(pages_for(archive_count)) {}

  __device__ std::uint32_t page(int j) const {
    return j < archive_pages ? archive[j] : window[j - archive_pages];
  }
  // Entries in page j: the last page of each list may have free slots. None in a row without any.
  __device__ int entries_in(int j) const {
    const int left = j < archive_pages ? archive_count - j * kPageEntries
                                       : window_count - (j - archive_pages) * kPageEntries;
    return min(left, kPageEntries);
  }
};

__device__ float2 scales_from(std::uint32_t bits) {
  __nv_bfloat162 x;
  memcpy(&x, &bits, sizeof(x));
  return __bfloat1622float2(x);
}

// a and b as 16-bit numbers in `high`, and what that lost in `low`.
template <class Codes>
__device__ void split(float a, float b, std::uint32_t& high, std::uint32_t& low) {
  const auto rounded = Codes::round(a, b);
  const float2 seen = unpack(rounded);
  high = bits_of(rounded);
  low = bits_of(Codes::round(a - seen.x, b - seen.y));
}

// A warp's attention of one row's queries over some of its pages.
template <class Codes, int D>
class Attention {
 public:
  static constexpr int kPageBytes = page_bytes(D, Codes::kBytes);
  static constexpr int kStages = decode_stages(Codes::kBytes);

  /// `memory`: kStages pages of shared memory, this warp's own.
  __device__ Attention(const DecodeArguments& arguments, std::byte* memory)
      : arguments_(arguments), memory_(memory), lane_(threadIdx.x % kWarpSize) {}

  __device__ void load_queries(int row) {
    const int head = lane_ / 4;
    const float* query = arguments_.query +
                         (static_cast<std::size_t>(row) * arguments_.group + head) * D +
                         lane_ % 4 * (D / 4);
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      float4 q{};
      if (head < arguments_.group) {
        q = *reinterpret_cast<const float4*>(query + 4 * step);
      }
      const float scale = arguments_.scale;
      split<Codes>(q.x * scale, q.y * scale, query_[step][0], query_[step][1]);
      split<Codes>(q.z * scale, q.w * scale, query_[step][2], query_[step][3]);
    }
  }

  // Pages first, first + kDecodeWarps, ... before last.
  __device__ void run(const Row& row, int first, int last) {
    const int count = max(0, (last - first + kDecodeWarps - 1) / kDecodeWarps);
    const auto number = [first](int i) { return first + i * kDecodeWarps; };
    std::uint32_t ids = 0;  // of 32 pages, one per lane
    const auto fetch = [&](int i) {
      if (i < count) {
        if (i % kWarpSize == 0) {
          ids = i + lane_ < count ? row.page(number(i + lane_)) : 0;
        }
        copy_page(__shfl_sync(kAllLanes, ids, i % kWarpSize), i % kStages);
      }
      __pipeline_commit();
    };
    for (int i = 0; i < kStages - 1; ++i) {
      fetch(i);
    }
    for (int i = 0; i < count; ++i) {
      fetch(i + kStages - 1);
      __pipeline_wait_prior(kStages - 1);
      __syncwarp();
      attend(memory_ + i % kStages * kPageBytes, row.entries_in(number(i)));
      __syncwarp();  // the page may be overwritten
    }
    sum_ += __shfl_xor_sync(kAllLanes, sum_, 1);
    sum_ += __shfl_xor_sync(kAllLanes, sum_, 2);
  }

  /// The unnormalised output [group, D] and, per query head, the largest score and the sum of
  /// exponentials relative to it.
  __device__ void write(float* out, float2* sums) const {
    const int head = lane_ / 4;
    if (head >= arguments_.group) {
      return;
    }
    constexpr float kFactor = 1.0F / Codes::kWeightUnit;
    float* first = out + head * D + lane_ % 4 * 2 * kChannels;
#pragma unroll
    for (int t = 0; t < kChannels; t += 2) {
      *reinterpret_cast<float2*>(first + t) = {(out_[t][0] + out_[t][2]) * kFactor,
                                               (out_[t + 1][0] + out_[t + 1][2]) * kFactor};
      *reinterpret_cast<float2*>(first + kChannels + t) = {
          (out_[t][1] + out_[t][3]) * kFactor, (out_[t + 1][1] + out_[t + 1][3]) * kFactor};
    }
    if (lane_ % 4 == 0) {
      sums[head] = {largest_, sum_};
    }
  }

 private:
  static constexpr int kChannels = D / 8;                   // of the values, per lane
  static constexpr int kWords = D / 4 * Codes::kBytes / 4;  // 32-bit words a lane reads at once
  static constexpr int kValues = kPageEntries * D * Codes::kBytes;  // where they begin

  __device__ void copy_page(std::uint32_t page, int stage) const {
    const std::byte* from = arguments_.entries.pool + std::size_t{page} * kPageBytes;
    std::byte* to = memory_ + stage * kPageBytes;
#pragma unroll
    for (int first = 0; first < kPageBytes; first += kWarpSize * 16) {
      if (const int at = first + lane_ * 16; at < kPageBytes) {
        __pipeline_memcpy_async(to + at, from + at, 16);
      }
    }
  }

  __device__ void load(std::uint32_t (&words)[kWords], const std::byte* from) const {
    constexpr int kWide = kWords % 4 == 0 ? 4 : kWords % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < kWords; i += kWide) {
      memcpy(words + i, __builtin_assume_aligned(from + 4 * i, 4 * kWide), 4 * kWide);
    }
  }

  __device__ void load_scales(float2 (&scales)[2], const std::byte* from) const {
    const auto* pairs = reinterpret_cast<const std::uint32_t*>(from);
    scales[0] = scales_from(pairs[lane_ % 4]);
    scales[1] = scales_from(pairs[4 + lane_ % 4]);
  }

  __device__ void attend(const std::byte* page, int entries) {
    float scores[2][2];
    score(page, scores);
    std::uint32_t weights[4];
    weigh(page, scores, entries, weights);
    accumulate(page, weights, entries);
  }

  // Of entries 8 half + 2 c and its neighbour.
  __device__ void score(const std::byte* page, float (&scores)[2][2]) const {
    float products[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t keys[kWords];
      load(keys, page + half * (kValues / 2) + lane_ * (kWords * 4));
#pragma unroll
      for (int step = 0; step < D / 16; ++step) {
        multiply<typename Codes::Pair>(products[half], query_[step], Codes::pair(keys, 2 * step),
                                       Codes::pair(keys, 2 * step + 1));
      }
    }
    float2 scales[2] = {{1.0F, 1.0F}, {1.0F, 1.0F}};
    if constexpr (Codes::kScaled) {
      load_scales(scales, page + 2 * kValues);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scores[half][0] = (products[half][0] + products[half][2]) * scales[half].x;
      scores[half][1] = (products[half][1] + products[half][3]) * scales[half].y;
    }
  }

  // Turns scores into weights relative to the largest score so far, as the next product's operand.
  __device__ void weigh(const std::byte* page, float (&scores)[2][2], int entries,
                        std::uint32_t (&weights)[4]) {
    float largest = largest_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int entry = 8 * half + 2 * (lane_ % 4);
      scores[half][0] = entry < entries ? scores[half][0] : -INFINITY;
      scores[half][1] = entry + 1 < entries ? scores[half][1] : -INFINITY;
      largest = fmaxf(largest, fmaxf(scores[half][0], scores[half][1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    if (__any_sync(kAllLanes, largest > largest_)) {
      rescale(exp2f(largest_ - largest));
      largest_ = largest;
    }
    float2 scales[2] = {{1.0F, 1.0F}, {1.0F, 1.0F}};
    if constexpr (Codes::kScaled) {
      load_scales(scales, page + 2 * kValues + 2 * kPageEntries);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 weight{exp2f(scores[half][0] - largest), exp2f(scores[half][1] - largest)};
      sum_ += weight.x + weight.y;
      if constexpr (Codes::kScaled) {
        // A free slot's scale may be anything, NaN too.
        weight.x *= weight.x > 0.0F ? scales[half].x * Codes::kWeightUnit : 0.0F;
        weight.y *= weight.y > 0.0F ? scales[half].y * Codes::kWeightUnit : 0.0F;
      }
      split<Codes>(weight.x, weight.y, weights[2 * half], weights[2 * half + 1]);
    }
  }

  __device__ void rescale(float factor) {
    sum_ *= factor;
#pragma unroll
    for (auto& tile : out_) {
#pragma unroll
      for (float& x : tile) {
        x *= factor;
      }
    }
  }

  __device__ void accumulate(const std::byte* page, const std::uint32_t (&weights)[4],
                             int entries) {
    std::uint32_t values[2][kWords];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load(values[half], page + kValues + half * (kValues / 2) + lane_ * (kWords * 4));
    }
    if (entries < kPageEntries) {
      clear_from(entries, values);
    }
#pragma unroll
    for (int t = 0; t < kChannels; ++t) {
      multiply<typename Codes::Pair>(out_[t], weights, Codes::pair(values[0], t),
                                     Codes::pair(values[1], t));
    }
  }

  // Zeroes the values of slots [entries, kPageEntries): a weight of zero would not hide a NaN.
  __device__ void clear_from(int entries, std::uint32_t (&values)[2][kWords]) const {
    constexpr std::uint32_t kFirst = Codes::kBytes == 1 ? 0x00FF00FFU : 0x0000FFFFU;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int entry = 8 * half + 2 * (lane_ % 4);
      const std::uint32_t seen =
          entry + 1 < entries ? 0xFFFFFFFFU : (entry < entries ? kFirst : 0U);
#pragma unroll
      for (std::uint32_t& word : values[half]) {
        word &= seen;
      }
    }
  }

  const DecodeArguments& arguments_;
  std::byte* memory_;
  int lane_;
  std::uint32_t query_[D / 16][4];
  float out_[kChannels][4] = {};
  float largest_ = -INFINITY;
  float sum_ = 0.0F;
};

// Merges parts by log-sum-exp: channel pair `pair` of a query head, and the head's sums. Part p of
// the output lies at outs + p * out_stride, its sums at sums + p * sum_stride.
__device__ float2 merge_pair(const float* outs, std::size_t out_stride, const float2* sums,
                             std::size_t sum_stride, int parts, int pair, float2& merged) {
  merged = {-INFINITY, 0.0F};
#pragma unroll 4
  for (int part = 0; part < parts; ++part) {
    merged.x = fmaxf(merged.x, __ldcg(&sums[part * sum_stride].x));
  }
  float2 out{};
#pragma unroll 4
  for (int part = 0; part < parts; ++part) {
    const float2 own = __ldcg(&sums[part * sum_stride]);
    const float factor = exp2f(own.x - merged.x);
    const float2 x = __ldcg(reinterpret_cast<const float2*>(outs + part * out_stride) + pair);
    merged.y += own.y * factor;
    out.x += factor * x.x;
    out.y += factor * x.y;
  }
  return out;
}

// Where the blocks that share a row leave their parts.
struct Parts {
  int count;
  int first;  // place of the first one
  int own;
};

// A block's part of a row from those of its warps, in shared memory: to `out` when it is the whole
// row, else handed in; the block that hands in the last part merges them all.
template <int D>
__device__ void finish_row(const DecodeArguments& arguments, int row, const Parts& parts,
                           const float* warp_out, std::size_t warp_stride,
                           const float2 (&warp_sums)[kDecodeWarps][kMostGroup]) {
  const std::size_t size = arguments.group * D;
  float* target = arguments.out + row * size;
  float* part_out = arguments.plan.partial_out + parts.own * size;
  float2* part_sums = arguments.plan.partial_sums + std::size_t(parts.own) * arguments.group;
  for (int i = threadIdx.x; i < arguments.group * (D / 2); i += blockDim.x) {
    const int head = i / (D / 2);
    float2 largest_and_sum{-INFINITY, 0.0F};
    float2 out{};
#pragma unroll
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      largest_and_sum.x = fmaxf(largest_and_sum.x, warp_sums[warp][head].x);
    }
#pragma unroll
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      const float factor = exp2f(warp_sums[warp][head].x - largest_and_sum.x);
      const float2 x = reinterpret_cast<const float2*>(warp_out + warp * warp_stride)[i];
      largest_and_sum.y += factor * warp_sums[warp][head].y;
      out.x += factor * x.x;
      out.y += factor * x.y;
    }
    if (parts.count == 1) {
      const float divisor = largest_and_sum.y;
      reinterpret_cast<float2*>(target)[i] = {out.x / divisor, out.y / divisor};
    } else {
      reinterpret_cast<float2*>(part_out)[i] = out;
      if (i % (D / 2) == 0) {
        part_sums[head] = largest_and_sum;
      }
    }
  }
  if (parts.count == 1) {
    return;
  }
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arguments.plan.arrived + row, 1) + 1 == parts.count;
  }
  __syncthreads();
  if (!last) {
    return;
  }
  __threadfence();
  for (int i = threadIdx.x; i < arguments.group * (D / 2); i += blockDim.x) {
    const int head = i / (D / 2);
    float2 merged;
    const float2 out =
        merge_pair(arguments.plan.partial_out + parts.first * size, size,
                   arguments.plan.partial_sums + std::size_t(parts.first) * arguments.group + head,
                   arguments.group, parts.count, i, merged);
    reinterpret_cast<float2*>(target)[i] = {out.x / merged.y, out.y / merged.y};
  }
  if (threadIdx.x == 0) {
    arguments.plan.arrived[row] = 0;  // for the next layer
  }
}

__device__ void write_zeros(float* out, int size) {
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    out[i] = 0.0F;
  }
}

template <class Codes, int D>
__global__ void __launch_bounds__(kDecodeWarps* kWarpSize, blocks_resident(D, Codes::kBytes))
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  using WarpAttention = Attention<Codes, D>;
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ float2 sums[kDecodeWarps][kMostGroup];
  constexpr int kWarpBytes = WarpAttention::kStages * WarpAttention::kPageBytes;
  static_assert(kWarpBytes >= kMostGroup * D * sizeof(float), "the pages make room for the output");
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  std::byte* own_memory = memory + warp * kWarpBytes;

  int4 run = arguments.plan.runs[blockIdx.x];  // row, page of that row, pages, pages before the row
  const int each = *arguments.plan.pages_each;
  for (int row = run.x; run.z > 0; ++row) {
    const Row entries(arguments.entries, row);
    const int pages = max(1, entries.archive_pages + pages_for(entries.window_count));
    const int count = min(run.z, pages - run.y);
    if (entries.archive_count + entries.window_count == 0) {
      write_zeros(arguments.out + static_cast<std::size_t>(row) * arguments.group * D,
                  arguments.group * D);
    } else {
      WarpAttention attention(arguments, own_memory);
      attention.load_queries(row);
      attention.run(entries, run.y + warp, run.y + count);
      attention.write(reinterpret_cast<float*>(own_memory), sums[warp]);
      __syncthreads();
      const int first_block = run.w / each;
      const Parts parts{(run.w + pages - 1) / each - first_block + 1, first_block + row,
                        static_cast<int>(blockIdx.x) + row};
      finish_row<D>(arguments, row, parts, reinterpret_cast<const float*>(memory),
                    kWarpBytes / sizeof(float), sums);
      __syncthreads();  // the shared memory may be overwritten
    }
    run.y = 0;
    run.z -= count;
    run.w += pages;
  }
}

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

__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(DecodeEntries entries, DecodePlan::View plan) {
  const int thread = static_cast<int>(threadIdx.x);
  int pages = 0;
  for (int first = 0; first < plan.rows; first += kPlanThreads) {
    const int row = first + thread;
    int own = 0;
    if (row < plan.rows) {
      // A row without entries takes a place as well: somebody must write its zeros.
      own = max(1, pages_for(entries.archive_counts[row]) + pages_for(entries.window_counts[row]));
      plan.arrived[row] = 0;
    }
    int total = 0;
    const int through = block_scan(own, total);
    if (row < plan.rows) {
      plan.row_begin[row + 1] = pages + through;
    }
    pages += total;
  }
  const int each = max(kLeastPages, (pages + plan.workers - 1) / plan.workers);
  if (thread == 0) {
    plan.row_begin[0] = 0;
    *plan.pages_each = each;
  }
  __syncthreads();
  for (int worker = thread; worker < plan.workers; worker += kPlanThreads) {
    const int first = worker * each;
    int low = 0;
    int high = plan.rows;  // the last row that begins at or before the worker's first page
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (plan.row_begin[middle] <= first ? low : high) = middle;
    }
    const int before = plan.row_begin[low];
    plan.runs[worker] = {low, first - before, min(each, pages - first), before};
  }
}

template <class Codes, int D>
void launch(const DecodeArguments& arguments, cudaStream_t stream) {
  constexpr int kShared = decode_shared_bytes(D, Codes::kBytes);
  winnow::cuda::check(cudaFuncSetAttribute(attention_kernel<Codes, D>,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                      "shared memory of decode attention");
  attention_kernel<Codes, D>
      <<<arguments.plan.workers, kDecodeWarps * kWarpSize, kShared, stream>>>(arguments);
  winnow::cuda::check_launch("decode attention");
}

template <class Codes>
void launch(int head_dim, const DecodeArguments& arguments, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch<Codes, 64>(arguments, stream);
    case 80:
      return launch<Codes, 80>(arguments, stream);
    case 96:
      return launch<Codes, 96>(arguments, stream);
    default:
      return launch<Codes, 128>(arguments, stream);
  }
}

}  // namespace

void launch_plan(const DecodeEntries& entries, const DecodePlan::View& plan, cudaStream_t stream) {
  plan_kernel<<<1, kPlanThreads, 0, stream>>>(entries, plan);
  winnow::cuda::check_launch("decode plan");
}

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream) {
  switch (format) {
    case DType::bf16:
      return launch<Bf16Codes>(head_dim, arguments, stream);
    case DType::f8e4m3:
      return launch<F8Codes>(head_dim, arguments, stream);
    default:
      return launch<I8Codes>(head_dim, arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
