#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/training/training_head_parts.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// From the projection to attention's operands.
template <int Width>
__device__ void transform(HeadLanes<Width>& x, const TrainingHeads& h, const Place& place,
                          const BorrowedChannel& borrowed, int channel, float* read) {
  if (!h.norms_after_rope) {
    norm_head(x, h, place);
  }
  take_channel(x, h, borrowed, channel, read);
  rotate(x, h, angles_of(h, place.row), 1.0F, !place.is_value);
  if (h.norms_after_rope) {
    norm_head(x, h, place);
  }
  if (channel >= 0 && h.clear_after_rope) {
    x.for_values(h.head_dim / 2, [&](float& v, int c) { v *= c == channel ? *h.factor : 1.0F; });
  }
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const __grid_constant__ TrainingHeads h, bf16* queries, bf16* keys, bf16* values,
                 float* query_read, float* key_read) {
  const int half = h.head_dim / 2;
  constexpr int kGroup = HeadLanes<Width>::kWidth;
  const int all = h.heads + 2 * h.kv_heads;
  const int count = h.rows * all;
  const int step = static_cast<int>(gridDim.x) * (kThreads / kGroup);
  const int first =
      static_cast<int>(blockIdx.x) * (kThreads / kGroup) + static_cast<int>(threadIdx.x) / kGroup;
  // All lanes of a warp have the same number of iterations: they add up together.
  for (int base = 0; base < count; base += step) {
    const bool exists = base + first < count;
    const Place place = place_of(h, exists ? base + first : count - 1, all);
    const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
    const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
    HeadLanes<Width> x;
    load_raw(x, h, place, borrowed, channel);
    float* reads = place.is_query ? query_read : key_read;
    float* read = reads != nullptr && exists && channel >= 0
                      ? reads + place.row * h.kv_heads + place.head / borrowed.every
                      : nullptr;
    transform(x, h, place, borrowed, channel, read);
    if (exists) {
      bf16* to = place.is_query ? queries : place.is_value ? values : keys;
      const int heads = place.is_query ? h.heads : h.kv_heads;
      x.store(to + (place.row * heads + place.head) * h.head_dim, half);
    }
  }
}

/// Through q- or k-norm, replacing g by dx_i = r (w_i g_i - m - x_i r^2 / D sum_j x_j w_j g_j),
/// where w are the weights with their offset, x is centred if the norm centers, and m is then
/// the mean of w g, else 0. The head's part of the weight's gradient replaces x.
template <int Width>
__device__ void norm_backward(HeadLanes<Width>& g, HeadLanes<Width>& x, const TrainingHeads& h,
                              const OwnNorm& norm) {
  const int half = h.head_dim / 2;
  const auto channels = static_cast<float>(h.head_dim);
  const float factor = center_and_measure(x, h, norm);
  float product = 0.0F;
  float sum = 0.0F;
  g.for_pairs(x, half, [&](float& dy, float& v, int c) {
    product += dy * v * norm[c];
    sum += dy * norm[c];
  });
  const float along = lane_sum<HeadLanes<Width>::kWidth>(product) * factor * factor / channels;
  const float mean = norm.centers ? lane_sum<HeadLanes<Width>::kWidth>(sum) / channels : 0.0F;
  g.for_pairs(x, half, [&](float& dy, float& v, int c) {
    const float dx = factor * (norm[c] * dy - mean - v * along);
    v *= dy * factor;
    dy = dx;
  });
}

/// Recomputes the norm's input.
template <int Width>
__device__ void load_norm_input(HeadLanes<Width>& x, const TrainingHeads& h, const Place& place,
                                const BorrowedChannel& borrowed, int channel) {
  load_raw(x, h, place, borrowed, channel);
  if (h.norms_after_rope) {
    take_channel(x, h, borrowed, channel, nullptr);
    rotate(x, h, angles_of(h, place.row), 1.0F, !place.is_value);
  }
}

/// Sums over a lane's heads of their parts of the norm weights' gradients.
template <int Width>
struct NormSums {
  HeadLanes<Width> query;
  HeadLanes<Width> key;

  /// `x`: of one head. All heads of a kind share their weights, or the gradients have a row per
  /// head.
  __device__ void add(HeadLanes<Width>& x, const TrainingHeads& h, const TrainingHeadsGradients& d,
                      const Place& place) {
    const int half = h.head_dim / 2;
    const auto add = [](float& total, float& v, int) { total += v; };
    if (!h.own_norms && place.is_query) {
      return query.for_pairs(x, half, add);
    }
    if (!h.own_norms) {
      return key.for_pairs(x, half, add);
    }
    float* own = place.is_query ? d.query_norm : d.key_norm;
    if (own != nullptr) {
      x.for_values(half, [&](float& v, int c) { atomicAdd(own + place.head * h.head_dim + c, v); });
    }
  }
};

/// g through the norm of its head, for all lanes of a warp or for none; results for heads
/// without a norm are dropped.
template <int Width>
__device__ void through_norm(HeadLanes<Width>& g, const TrainingHeads& h,
                             const TrainingHeadsGradients& d, const Place& place,
                             const BorrowedChannel& borrowed, int channel, bool exists,
                             NormSums<Width>& sums) {
  if (!norms_any(h)) {
    return;
  }
  HeadLanes<Width> x;
  load_norm_input(x, h, place, borrowed, channel);
  HeadLanes<Width> through = g;
  norm_backward(through, x, h, OwnNorm(h, place));
  if (is_normed(h, place)) {
    g = through;
    if (exists && !place.is_value) {
      sums.add(x, h, d, place);
    }
  }
}

/// If values are keys: adds the value head's gradient, through its norm, to the key head's.
template <int Width>
__device__ void add_values(HeadLanes<Width>& g, const TrainingHeads& h,
                           const TrainingHeadsGradients& d, Place place, NormSums<Width>& sums) {
  const int half = h.head_dim / 2;
  const bool is_key = !place.is_query;
  HeadLanes<Width> values;
  if (is_key) {
    values.load(d.values + (place.row * h.kv_heads + place.head) * h.head_dim, half);
  }
  place.is_value = true;
  through_norm(values, h, d, place, h.key, -1, false, sums);
  if (is_key) {
    g.for_pairs(values, half, [](float& sum, float& v, int) { sum += v; });
  }
}

/// *sum += the block's lanes' parts for each channel.
template <int Width>
__device__ void add_to(float* sum, HeadLanes<Width>& x, int half, float (&memory)[kMostHeadDim]) {
  __syncthreads();
  for (int i = threadIdx.x; i < kMostHeadDim; i += kThreads) {
    memory[i] = 0.0F;
  }
  __syncthreads();
  x.for_values(half, [&](float& v, int c) { atomicAdd(memory + c, v); });
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * half; i += kThreads) {
    atomicAdd(sum + i, memory[i]);
  }
}

/// The gradient of a borrowed channel before the norm goes to the probe that replaced it, or to the
/// model's own value.
template <int Width>
__device__ void release_channel(HeadLanes<Width>& g, const TrainingHeads& h, bf16* dprobe,
                                const Place& place, const BorrowedChannel& borrowed, int channel,
                                bool exists) {
  const bool carries = borrowed.probe != nullptr;
  const int probe = place.head / borrowed.every;
  g.for_values(h.head_dim / 2, [&](float& v, int c) {
    if (c != channel) {
      return;
    }
    if (carries && exists && probe < borrowed.probes) {
      dprobe[place.row * borrowed.stride + probe] = to_bf16(v);
    }
    v *= carries ? 0.0F : *h.factor;
  });
}

/// Backward of transform(); all lanes of a warp take part, even if their head does not exist.
template <int Width>
__device__ void transform_backward(HeadLanes<Width>& g, const TrainingHeads& h,
                                   const TrainingHeadsGradients& d, const Place& place, bool exists,
                                   NormSums<Width>& sums) {
  const int half = h.head_dim / 2;
  const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
  const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
  if (channel >= 0 && h.clear_after_rope) {
    g.for_values(half, [&](float& v, int c) { v *= c == channel ? *h.factor : 1.0F; });
  }
  if (h.norms_after_rope) {
    through_norm(g, h, d, place, borrowed, channel, exists, sums);
  }
  rotate(g, h, angles_of(h, place.row), -1.0F, !place.is_value);
  if (channel >= 0 && borrowed.probe != nullptr) {
    const float* dread = place.is_query ? d.query_read : d.key_read;
    const float value = dread[place.row * h.kv_heads + place.head / borrowed.every];
    g.for_values(half, [&](float& v, int c) { v = c == channel ? value : v; });
  }
  if (!h.norms_after_rope) {
    through_norm(g, h, d, place, borrowed, channel, exists, sums);
  }
  if (channel >= 0) {
    bf16* dprobe = place.is_query ? d.query_probe : d.key_probe;
    release_channel(g, h, dprobe, place, borrowed, channel, exists);
  }
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(const __grid_constant__ TrainingHeads h,
                          const __grid_constant__ TrainingHeadsGradients d) {
  __shared__ float memory[kMostHeadDim];
  NormSums<Width> sums;
  const int half = h.head_dim / 2;
  const std::size_t width = projected_width(h);
  constexpr int kGroup = HeadLanes<Width>::kWidth;
  const int all = h.heads + key_places(h);
  const int count = h.rows * all;
  const int step = static_cast<int>(gridDim.x) * (kThreads / kGroup);
  const int first =
      static_cast<int>(blockIdx.x) * (kThreads / kGroup) + static_cast<int>(threadIdx.x) / kGroup;
  for (int base = 0; base < count; base += step) {
    const bool exists = base + first < count;
    const Place place = place_of(h, exists ? base + first : count - 1, all);
    const int heads = place.is_query ? h.heads : h.kv_heads;
    const bf16* from = place.is_query ? d.queries : place.is_value ? d.values : d.keys;
    HeadLanes<Width> g;
    g.load(from + (place.row * heads + place.head) * h.head_dim, half);
    transform_backward(g, h, d, place, exists, sums);
    if (h.values_are_keys) {
      add_values(g, h, d, place, sums);
    }
    if (exists) {
      g.store(d.projected + place.row * width + place.column, half);
    }
  }
  if (d.query_norm != nullptr && !h.own_norms) {
    add_to(d.query_norm, sums.query, half, memory);
  }
  if (d.key_norm != nullptr && !h.own_norms) {
    add_to(d.key_norm, sums.key, half, memory);
  }
}

/// body(std::integral_constant<int, Width>): a lane per 8 channels, rounded up to a power of two.
template <int Width = 1, class Body>
void with_width(int head_dim, const Body& body) {
  if constexpr (8 * Width == kMostHeadDim) {
    body(std::integral_constant<int, Width>());
  } else if (head_dim <= 8 * Width) {
    body(std::integral_constant<int, Width>());
  } else {
    with_width<2 * Width>(head_dim, body);
  }
}

int blocks_of(const TrainingHeads& h, int width) {
  constexpr int kBlocksPerProcessor = 8;
  static const int processors = winnow::cuda::multiprocessor_count();
  const int heads = h.rows * (h.heads + 2 * h.kv_heads);
  const int per_block = kThreads / std::min(width, kLanes);
  return std::min((heads + per_block - 1) / per_block, kBlocksPerProcessor * processors);
}

}  // namespace

void split_heads(const TrainingHeads& heads, bf16* queries, bf16* keys, bf16* values,
                 float* query_read, float* key_read, cudaStream_t stream) {
  with_width(heads.head_dim, [&](auto width) {
    split_kernel<width()><<<blocks_of(heads, width()), kThreads, 0, stream>>>(
        heads, queries, keys, values, query_read, key_read);
  });
  winnow::cuda::check_launch("heads");
}

void split_heads_backward(const TrainingHeads& heads, const TrainingHeadsGradients& gradients,
                          cudaStream_t stream) {
  for (const auto& [probe, stride] : {std::pair(gradients.query_probe, heads.query.stride),
                                      std::pair(gradients.key_probe, heads.key.stride)}) {
    if (probe != nullptr) {
      winnow::cuda::check(
          cudaMemsetAsync(probe, 0, std::size_t(heads.rows) * stride * sizeof(bf16), stream),
          "fill");
    }
  }
  with_width(heads.head_dim, [&](auto width) {
    split_backward_kernel<width()>
        <<<blocks_of(heads, width()), kThreads, 0, stream>>>(heads, gradients);
  });
  winnow::cuda::check_launch("heads, backward");
}

}  // namespace winnow::ops::cuda
