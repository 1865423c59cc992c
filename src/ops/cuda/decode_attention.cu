// A warp reads one page at a time. Lane 4 r + c, r < 8 and c < 4, of the products [16, 16] x [16,
// 8]:
//   scores [query head, entry] = queries x keys: the lane reads a quarter (c) of the channels of
//     entries r and r + 8. Channels may be multiplied in any order, so what the lane has read is
//     its operand.
//   output [query head, channel] = weights x values: the lane reads an eighth (r) of the channels
//   of
//     entries 2c, 2c + 1, 2c + 8 and 2c + 9, whose weights are where the first product left them.
// A group has at most 8 query heads, yet the left operand has 16 rows: rows 8 to 15 hold what
// rounding to 16 bits took from rows 0 to 7, at no cost.
#include <cmath>

#include "base/cuda/device.h"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/kv_codes.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kLeastPages = 4;  // per worker: fewer would spend more on the merge than they save
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

  __device__ int pages() const { return archive_pages + pages_for(window_count); }
  __device__ std::uint32_t page(int j) const {
    return j < archive_pages ? archive[j] : window[j - archive_pages];
  }
  // Entries in page j: the last page of each list may have free slots.
  __device__ int entries_in(int j) const {
    const int left = j < archive_pages ? archive_count - j * kPageEntries
                                       : window_count - (j - archive_pages) * kPageEntries;
    return min(left, kPageEntries);
  }
};

template <int Words>
__device__ void load_words(std::uint32_t (&words)[Words], const std::byte* from) {
  if constexpr (Words % 4 == 0) {
#pragma unroll
    for (int i = 0; i < Words / 4; ++i) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(from) + i);
      words[4 * i] = x.x;
      words[4 * i + 1] = x.y;
      words[4 * i + 2] = x.z;
      words[4 * i + 3] = x.w;
    }
  } else if constexpr (Words % 2 == 0) {
#pragma unroll
    for (int i = 0; i < Words / 2; ++i) {
      const uint2 x = __ldg(reinterpret_cast<const uint2*>(from) + i);
      words[2 * i] = x.x;
      words[2 * i + 1] = x.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < Words; ++i) {
      words[i] = __ldg(reinterpret_cast<const std::uint32_t*>(from) + i);
    }
  }
}

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

// Attention of one row's queries over some of its pages, held by a warp.
template <class Codes, int D>
class Attention {
 public:
  __device__ Attention(const DecodeArguments& arguments, int row)
      : arguments_(arguments), lane_(threadIdx.x % kWarpSize) {
    load_queries(row);
  }

  __device__ void run(const Row& row, int first, int last) {
    std::uint32_t next = row.page(first);
    point_to(next);
    load_keys();
    load_values();
    next = row.page(min(first + 1, last - 1));
    for (int j = first; j < last; ++j) {
      float scores[2][2];
      score(scores);
      point_to(next);
      next = row.page(min(j + 2, last - 1));
      if (j + 1 < last) {
        load_keys();
      }
      std::uint32_t weights[4];
      const int entries = row.entries_in(j);
      weigh(scores, entries, weights);
      if (entries < kPageEntries) {
        clear_values_from(entries);
      }
      accumulate(weights);
      if (j + 1 < last) {
        load_values();
      }
    }
    sum_ += __shfl_xor_sync(kAllLanes, sum_, 1);
    sum_ += __shfl_xor_sync(kAllLanes, sum_, 2);
  }

  // out [group, D] divided by `divisor`, which is each query head's own.
  __device__ void write(float* out, float divisor) const {
    const int head = lane_ / 4;
    if (head >= arguments_.group) {
      return;
    }
    const float factor = 1.0F / (divisor * Codes::kWeightUnit);
    float* first = out + head * D + lane_ % 4 * 2 * kChannels;
#pragma unroll
    for (int t = 0; t < kChannels; t += 2) {
      *reinterpret_cast<float2*>(first + t) = {(out_[t][0] + out_[t][2]) * factor,
                                               (out_[t + 1][0] + out_[t + 1][2]) * factor};
      *reinterpret_cast<float2*>(first + kChannels + t) = {
          (out_[t][1] + out_[t][3]) * factor, (out_[t + 1][1] + out_[t + 1][3]) * factor};
    }
  }

  __device__ void write_sums(float2* sums) const {
    if (lane_ % 4 == 0 && lane_ / 4 < arguments_.group) {
      sums[lane_ / 4] = {largest_, sum_};
    }
  }

  __device__ float sum() const {
    return sum_;
  }

 private:
  static constexpr int kChannels = D / 8;                   // of the values, per lane
  static constexpr int kWords = D / 4 * Codes::kBytes / 4;  // 32-bit words a lane reads at once
  static constexpr std::size_t kValues = std::size_t{kPageEntries} * D * Codes::kBytes;

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
      split<Codes>(q.x * arguments_.scale, q.y * arguments_.scale, query_[step][0],
                   query_[step][1]);
      split<Codes>(q.z * arguments_.scale, q.w * arguments_.scale, query_[step][2],
                   query_[step][3]);
    }
  }

  __device__ void point_to(std::uint32_t page) {
    page_ = arguments_.entries.pool + page * arguments_.page_bytes;
  }

  __device__ void load_keys() {
    const std::byte* from = page_ + lane_ * (kWords * 4);
    load_words(keys_[0], from);
    load_words(keys_[1], from + kValues / 2);
    if constexpr (Codes::kScaled) {
      const auto* scales = reinterpret_cast<const std::uint32_t*>(page_ + 2 * kValues);
      key_scales_[0] = __ldg(scales + lane_ % 4);
      key_scales_[1] = __ldg(scales + 4 + lane_ % 4);
    }
  }

  __device__ void load_values() {
    const std::byte* from = page_ + kValues + (lane_ % 4 * 8 + lane_ / 4) * (kWords * 4);
    load_words(values_[0], from);
    load_words(values_[1], from + kValues / 2);
    if constexpr (Codes::kScaled) {
      const auto* scales = reinterpret_cast<const std::uint32_t*>(page_ + 2 * kValues) + 8;
      value_scales_[0] = __ldg(scales + lane_ % 4);
      value_scales_[1] = __ldg(scales + 4 + lane_ % 4);
    }
  }

  // Of entries 8 half + 2 c and its neighbour.
  __device__ void score(float (&scores)[2][2]) {
    float products[2][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply<typename Codes::Pair>(products[half], query_[step],
                                       Codes::pair(keys_[half], 2 * step),
                                       Codes::pair(keys_[half], 2 * step + 1));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 scale{1.0F, 1.0F};
      if constexpr (Codes::kScaled) {
        scale = scales_from(key_scales_[half]);
      }
      scores[half][0] = (products[half][0] + products[half][2]) * scale.x;
      scores[half][1] = (products[half][1] + products[half][3]) * scale.y;
    }
  }

  // Turns scores into weights relative to the largest score so far, as the next product's operand.
  __device__ void weigh(const float (&scores)[2][2], int entries, std::uint32_t (&weights)[4]) {
    float x[2][2];
    float largest = largest_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int entry = 8 * half + 2 * (lane_ % 4);
      x[half][0] = entry < entries ? scores[half][0] : -INFINITY;
      x[half][1] = entry + 1 < entries ? scores[half][1] : -INFINITY;
      largest = fmaxf(largest, fmaxf(x[half][0], x[half][1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    if (__any_sync(kAllLanes, largest > largest_)) {
      rescale(exp2f(largest_ - largest));
      largest_ = largest;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 weight{exp2f(x[half][0] - largest), exp2f(x[half][1] - largest)};
      sum_ += weight.x + weight.y;
      if constexpr (Codes::kScaled) {
        // A free slot's scale may be anything, NaN too.
        const float2 scale = scales_from(value_scales_[half]);
        weight.x *= weight.x > 0.0F ? scale.x * Codes::kWeightUnit : 0.0F;
        weight.y *= weight.y > 0.0F ? scale.y * Codes::kWeightUnit : 0.0F;
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

  // Zeroes the values of slots [entries, kPageEntries): a weight of zero would not hide a NaN.
  __device__ void clear_values_from(int entries) {
    constexpr std::uint32_t kFirst = Codes::kBytes == 1 ? 0x00FF00FFU : 0x0000FFFFU;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int entry = 8 * half + 2 * (lane_ % 4);
      const std::uint32_t seen =
          entry + 1 < entries ? 0xFFFFFFFFU : (entry < entries ? kFirst : 0U);
#pragma unroll
      for (std::uint32_t& word : values_[half]) {
        word &= seen;
      }
    }
  }

  __device__ void accumulate(const std::uint32_t (&weights)[4]) {
#pragma unroll
    for (int t = 0; t < kChannels; ++t) {
      multiply<typename Codes::Pair>(out_[t], weights, Codes::pair(values_[0], t),
                                     Codes::pair(values_[1], t));
    }
  }

  const DecodeArguments& arguments_;
  int lane_;
  const std::byte* page_ = nullptr;  // the next one to read
  std::uint32_t query_[D / 16][4];
  std::uint32_t keys_[2][kWords];
  std::uint32_t values_[2][kWords];
  std::uint32_t key_scales_[2];
  std::uint32_t value_scales_[2];
  float out_[kChannels][4] = {};
  float largest_ = -INFINITY;
  float sum_ = 0.0F;
};

// Merges the parts of a row by log-sum-exp: out [group, D].
template <int D>
__device__ void merge(const DecodeArguments& arguments, int row, int first_slot, int parts) {
  const int lane = threadIdx.x % kWarpSize;
  const int group = arguments.group;
  for (int head = 0; head < group; ++head) {
    const float2* sums =
        arguments.plan.partial_sums + static_cast<std::size_t>(first_slot) * group + head;
    const float* outs =
        arguments.plan.partial_out + (static_cast<std::size_t>(first_slot) * group + head) * D;
    float largest = -INFINITY;
    for (int part = lane; part < parts; part += kWarpSize) {
      largest = fmaxf(largest, __ldcg(sums + part * group).x);
    }
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
    }
    float sum = 0.0F;
    float2 out[(D / 2 + kWarpSize - 1) / kWarpSize] = {};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
      const float2 own = __ldcg(sums + part * group);
      const float factor = exp2f(own.x - largest);
      sum += own.y * factor;
#pragma unroll
      for (int i = 0; i * kWarpSize < D / 2; ++i) {
        if (const int pair = lane + i * kWarpSize; pair < D / 2) {
          const float2 x = __ldcg(
              reinterpret_cast<const float2*>(outs + static_cast<std::size_t>(part) * group * D) +
              pair);
          out[i].x += factor * x.x;
          out[i].y += factor * x.y;
        }
      }
    }
    auto* target = reinterpret_cast<float2*>(arguments.out +
                                             (static_cast<std::size_t>(row) * group + head) * D);
#pragma unroll
    for (int i = 0; i * kWarpSize < D / 2; ++i) {
      if (const int pair = lane + i * kWarpSize; pair < D / 2) {
        target[pair] = {out[i].x / sum, out[i].y / sum};
      }
    }
  }
}

// Leaves a part of a row behind; the warp that brings the last one merges them all.
template <class Codes, int D>
__device__ void hand_in(const DecodeArguments& arguments, const Attention<Codes, D>& attention,
                        int row, int slot, int first_slot, int parts) {
  const std::size_t place = static_cast<std::size_t>(slot) * arguments.group;
  attention.write(arguments.plan.partial_out + place * D, 1.0F);
  attention.write_sums(arguments.plan.partial_sums + place);
  __threadfence();
  __syncwarp();
  int before = 0;
  if (threadIdx.x % kWarpSize == 0) {
    before = atomicAdd(arguments.plan.arrived + row, 1);
  }
  before = __shfl_sync(kAllLanes, before, 0);
  if (before + 1 < parts) {
    return;
  }
  __threadfence();
  merge<D>(arguments, row, first_slot, parts);
  if (threadIdx.x % kWarpSize == 0) {
    arguments.plan.arrived[row] = 0;  // for the next layer
  }
}

template <int D>
__device__ void write_zeros(const DecodeArguments& arguments, int row) {
  float* out = arguments.out + static_cast<std::size_t>(row) * arguments.group * D;
  for (int i = threadIdx.x % kWarpSize; i < arguments.group * D; i += kWarpSize) {
    out[i] = 0.0F;
  }
}

template <class Codes, int D>
__global__ void __launch_bounds__(kDecodeWarps* kWarpSize, blocks_resident(D, Codes::kBytes))
    attention_kernel(const __grid_constant__ DecodeArguments arguments) {
  const DecodePlan::View& plan = arguments.plan;
  const int worker =
      static_cast<int>(blockIdx.x) * kDecodeWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  const int each = *plan.pages_each;
  const int end = min((worker + 1) * each, plan.row_begin[plan.rows]);
  int page = worker * each;
  for (int row = plan.first_row[worker]; page < end; ++row) {
    const int row_first = plan.row_begin[row];
    const int row_last = plan.row_begin[row + 1];
    const int stop = min(end, row_last);
    const Row entries(arguments.entries, row);
    if (entries.pages() == 0) {
      write_zeros<D>(arguments, row);
    } else {
      Attention<Codes, D> attention(arguments, row);
      attention.run(entries, page - row_first, stop - row_first);
      const int first_worker = row_first / each;
      const int parts = (row_last - 1) / each - first_worker + 1;
      if (parts == 1) {
        attention.write(arguments.out + static_cast<std::size_t>(row) * arguments.group * D,
                        attention.sum());
      } else {
        hand_in<Codes, D>(arguments, attention, row, worker + row, first_worker + row, parts);
      }
    }
    page = stop;
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
    int low = 0;
    int high = plan.rows;  // the last row that begins at or before the worker's first page
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (plan.row_begin[middle] <= worker * each ? low : high) = middle;
    }
    plan.first_row[worker] = low;
  }
}

template <class Codes, int D>
void launch(const DecodeArguments& arguments, cudaStream_t stream) {
  attention_kernel<Codes, D>
      <<<arguments.plan.workers / kDecodeWarps, kDecodeWarps * kWarpSize, 0, stream>>>(arguments);
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
