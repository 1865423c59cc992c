#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/training/training_head_lanes.cuh"
#include "ops/cuda/training/training_heads.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostDim = 512;

/// RoPE of a head, or back; values do not rotate, but their lanes go along.
template <int Width>
__device__ void rotate(HeadLanes<Width>& x, const TrainingHeads& h, const float2* angles,
                       float direction, bool rotates) {
  const int half = h.head_dim / 2;
  if (h.interleaved) {
    if (rotates) {
      x.rotate_neighbours(angles, half, h.rotary >= 0 ? h.rotary : h.head_dim, direction);
    }
  } else if (h.rotary >= 0) {
    x.rotate_first(angles, half, h.rotary, direction, rotates);
  } else if (rotates) {
    x.rotate_all(angles, half, direction);
  }
}

/// Which head of which token a group of lanes has.
struct Place {
  std::size_t row;
  int head;  // among those of its kind
  bool is_query;
  bool is_value;
  int column;  // of its first channel in the projection
};

/// Heads that a token's projection has in front of its keys, and all it has.
__device__ int query_places(const TrainingHeads& h) {
  return h.output_gates ? 2 * h.heads : h.heads;
}
__device__ int key_places(const TrainingHeads& h) {
  return h.values_are_keys ? h.kv_heads : 2 * h.kv_heads;
}
__device__ std::size_t projected_width(const TrainingHeads& h) {
  return static_cast<std::size_t>(query_places(h) + key_places(h)) * h.head_dim;
}

/// `all`: heads of a token that are gone through.
__device__ Place place_of(const TrainingHeads& h, int index, int all) {
  const int head = index % all;
  Place place{static_cast<std::size_t>(index / all), head, head < h.heads,
              head >= h.heads + h.kv_heads, 0};
  int before = h.output_gates ? 2 * head : head;
  if (!place.is_query) {
    place.head = (head - h.heads) % h.kv_heads;
    before = query_places(h) + (h.values_are_keys ? place.head : head - h.heads);
  }
  place.column = before * h.head_dim;
  return place;
}

/// The borrowed channel of this head, or -1.
__device__ int borrowed_channel(const BorrowedChannel& borrowed, int head) {
  return borrowed.channel >= 0 && head % borrowed.every == 0 ? borrowed.channel : -1;
}

__device__ float probed(const BorrowedChannel& borrowed, const Place& place) {
  const int probe = place.head / borrowed.every;
  return probe < borrowed.probes ? borrowed.probe[place.row * borrowed.stride + probe] : 0.0F;
}

/// Bias added and the borrowed channel composed: what the norm takes.
template <int Width>
__device__ void load_raw(HeadLanes<Width>& x, const TrainingHeads& h, const Place& place,
                         const BorrowedChannel& borrowed, int channel) {
  const int half = h.head_dim / 2;
  x.load(h.projected + place.row * projected_width(h) + place.column, half);
  if (h.bias != nullptr) {
    x.for_values(half, [&](float& v, int c) { v += h.bias[place.column + c]; });
  }
  if (channel >= 0) {
    x.for_values(half, [&](float& v, int c) {
      if (c == channel) {
        v = borrowed.probe != nullptr ? probed(borrowed, place) : v * *h.factor;
      }
    });
  }
}

/// Whether a head is normed, and whether any is.
__device__ bool is_normed(const TrainingHeads& h, const Place& place) {
  return place.is_value ? h.value_norm : h.norms;
}
__device__ bool norms_any(const TrainingHeads& h) {
  return h.norms || h.value_norm;
}

/// The norm of a head: its weights, null where they are 1.
struct OwnNorm {
  const float* weight = nullptr;
  float offset;
  bool centers;

  __device__ OwnNorm(const TrainingHeads& h, const Place& place)
      : offset(h.norm_offset), centers(h.centers && !place.is_value) {
    if (!place.is_value) {
      weight = place.is_query ? h.query_norm : h.key_norm;
      weight += h.own_norms && weight != nullptr ? place.head * h.head_dim : 0;
    }
  }
  __device__ float operator[](int channel) const {
    return weight != nullptr ? offset + weight[channel] : 1.0F;
  }
};

/// x, centred where the norm centers, and 1 / the root of its mean square. All lanes of the warp.
template <int Width>
__device__ float center_and_measure(HeadLanes<Width>& x, const TrainingHeads& h,
                                    const OwnNorm& norm) {
  const int half = h.head_dim / 2;
  const auto channels = static_cast<float>(h.head_dim);
  if (h.centers) {
    float sum = 0.0F;
    x.for_values(half, [&](float& v, int) { sum += v; });
    const float mean = lane_sum<HeadLanes<Width>::kWidth>(sum) / channels;
    x.for_values(half, [&](float& v, int) { v -= norm.centers ? mean : 0.0F; });
  }
  float squares = 0.0F;
  x.for_values(half, [&](float& v, int) { squares += v * v; });
  return inverse_rms(lane_sum<HeadLanes<Width>::kWidth>(squares), channels, h.eps);
}

/// A token's angles.
__device__ const float2* angles_of(const TrainingHeads& h, std::size_t row) {
  const int turning = (h.rotary >= 0 ? h.rotary : h.head_dim) / 2;
  return h.angles + row * static_cast<std::size_t>(h.angle_stride > 0 ? h.angle_stride : turning);
}

/// The borrowed channel of a head, if it has one: read and cleared where a probe has its place.
template <int Width>
__device__ void take_channel(HeadLanes<Width>& x, const TrainingHeads& h,
                             const BorrowedChannel& borrowed, int channel, float* read) {
  if (channel >= 0 && borrowed.probe != nullptr) {
    x.for_values(h.head_dim / 2, [&](float& v, int c) {
      if (c == channel) {
        if (read != nullptr) {
          *read = v;
        }
        v = 0.0F;
      }
    });
  }
}

/// What is not normed stays as it is, but its lanes go along.
template <int Width>
__device__ void norm_head(HeadLanes<Width>& x, const TrainingHeads& h, const Place& place) {
  if (!norms_any(h)) {
    return;
  }
  HeadLanes<Width> normed = x;
  const OwnNorm norm(h, place);
  const float factor = center_and_measure(normed, h, norm);
  if (is_normed(h, place)) {
    x = normed;
    x.for_values(h.head_dim / 2, [&](float& v, int c) { v *= factor * norm[c]; });
  }
}

/// From the projection to what attention takes.
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
  // All lanes of a warp go round equally often: they add up together.
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

/// Through q- or k-norm: dx_i = r (w_i g_i - m - x_i r^2 / D sum_j x_j w_j g_j) in the place of g,
/// where w are the weights with their offset, x is centred where the norm centers, and m is then
/// the mean of w g, else 0. What the head adds to the gradient of the weight takes the place of x.
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

/// What the norm took, once more.
template <int Width>
__device__ void load_norm_input(HeadLanes<Width>& x, const TrainingHeads& h, const Place& place,
                                const BorrowedChannel& borrowed, int channel) {
  load_raw(x, h, place, borrowed, channel);
  if (h.norms_after_rope) {
    take_channel(x, h, borrowed, channel, nullptr);
    rotate(x, h, angles_of(h, place.row), 1.0F, !place.is_value);
  }
}

/// Sums over a lane's heads of what they add to the gradients of the norms' weights.
template <int Width>
struct NormSums {
  HeadLanes<Width> query;
  HeadLanes<Width> key;

  /// `x`: of one head. All heads of a kind share their weights, or the gradients have a row for
  /// each.
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

/// g through the norm of its head, for all lanes of a warp or for none; what becomes of heads
/// without one is dropped.
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

/// Where values are keys: to the gradient of a key head that of the value head, through its norm.
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

/// *sum += what the lanes of a block have for each channel.
template <int Width>
__device__ void add_to(float* sum, HeadLanes<Width>& x, int half, float (&memory)[kMostDim]) {
  __syncthreads();
  for (int i = threadIdx.x; i < kMostDim; i += kThreads) {
    memory[i] = 0.0F;
  }
  __syncthreads();
  x.for_values(half, [&](float& v, int c) { atomicAdd(memory + c, v); });
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * half; i += kThreads) {
    atomicAdd(sum + i, memory[i]);
  }
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(const __grid_constant__ TrainingHeads h,
                          const __grid_constant__ TrainingHeadsGradients d) {
  __shared__ float memory[kMostDim];
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
    const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
    const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
    const int heads = place.is_query ? h.heads : h.kv_heads;
    const bf16* from = place.is_query ? d.queries : place.is_value ? d.values : d.keys;
    HeadLanes<Width> g;
    g.load(from + (place.row * heads + place.head) * h.head_dim, half);
    if (channel >= 0 && h.clear_after_rope) {
      g.for_values(half, [&](float& v, int c) { v *= c == channel ? *h.factor : 1.0F; });
    }
    if (h.norms_after_rope) {
      through_norm(g, h, d, place, borrowed, channel, exists, sums);
    }
    rotate(g, h, angles_of(h, place.row), -1.0F, !place.is_value);
    const bool carries = channel >= 0 && borrowed.probe != nullptr;
    if (carries) {
      const float* dread = place.is_query ? d.query_read : d.key_read;
      const float value = dread[place.row * h.kv_heads + place.head / borrowed.every];
      g.for_values(half, [&](float& v, int c) { v = c == channel ? value : v; });
    }
    if (!h.norms_after_rope) {
      through_norm(g, h, d, place, borrowed, channel, exists, sums);
    }
    if (channel >= 0) {
      bf16* dprobe = place.is_query ? d.query_probe : d.key_probe;
      g.for_values(half, [&](float& v, int c) {
        if (c != channel) {
          return;
        }
        if (carries && exists && place.head / borrowed.every < borrowed.probes) {
          reinterpret_cast<__nv_bfloat16*>(
              dprobe)[place.row * borrowed.stride + place.head / borrowed.every] =
              __float2bfloat16_rn(v);
        }
        v *= carries ? 0.0F : *h.factor;
      });
    }
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
  if constexpr (8 * Width == kMostDim) {
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
