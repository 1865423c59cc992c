#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/head_transform.cuh"
#include "ops/cuda/training/training_heads.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostDim = 256;

struct alignas(8) Four {
  __nv_bfloat162 pairs[2];
};

// One head of one token, shared by `Width` neighbouring lanes: lane l has the channels 4 l to
// 4 l + 3 and their partners of the upper half, if there are so many.
template <int Width>
struct Head {
  float low[4] = {};
  float high[4] = {};

  __device__ static int first() { return 4 * (static_cast<int>(threadIdx.x) % Width); }

  /// body(x, channel) for every value of this lane.
  template <class Body>
  __device__ void for_values(int half, const Body& body) {
    if (first() < half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        body(low[i], first() + i);
        body(high[i], first() + i + half);
      }
    }
  }

  /// body(x, the same value of `other`, channel).
  template <class Body>
  __device__ void for_pairs(Head& other, int half, const Body& body) {
    if (first() < half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        body(low[i], other.low[i], first() + i);
        body(high[i], other.high[i], first() + i + half);
      }
    }
  }

  __device__ static void load_four(float (&x)[4], const bf16* from) {
    const Four four = *reinterpret_cast<const Four*>(from);
    const float2 a = __bfloat1622float2(four.pairs[0]);
    const float2 b = __bfloat1622float2(four.pairs[1]);
    x[0] = a.x;
    x[1] = a.y;
    x[2] = b.x;
    x[3] = b.y;
  }
  __device__ static void store_four(bf16* to, const float (&x)[4]) {
    *reinterpret_cast<Four*>(to) = {__floats2bfloat162_rn(x[0], x[1]),
                                    __floats2bfloat162_rn(x[2], x[3])};
  }

  __device__ void load(const bf16* from, int half) {
    if (first() < half) {
      load_four(low, from + first());
      load_four(high, from + half + first());
    }
  }

  __device__ void store(bf16* to, int half) const {
    if (first() < half) {
      store_four(to + first(), low);
      store_four(to + half + first(), high);
    }
  }

  /// The value of a channel, which each lane may ask for another one of. All lanes of the warp.
  __device__ float gathered(int channel, int half) const {
    const int within = channel % half;
    float own = 0.0F;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = __shfl_sync(0xFFFFFFFFU, low[i], within / 4, Width);
      const float b = __shfl_sync(0xFFFFFFFFU, high[i], within / 4, Width);
      if (within % 4 == i) {
        own = channel < half ? a : b;
      }
    }
    return own;
  }

  /// RoPE of whole heads: rotates each plane by its angle, or back.
  __device__ void rotate_all(const float2* angles, int half, float direction) {
    if (first() < half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 angle = angles[first() + i];
        rotate_plane(low[i], high[i], angle.x, direction * angle.y);
      }
    }
  }

  /// RoPE of the first `rotary` channels alone, of heads that rotate. All lanes of the warp.
  __device__ void rotate_first(const float2* angles, int half, int rotary, float direction,
                               bool rotates) {
    const Head before = *this;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& x = i < 4 ? low[i % 4] : high[i % 4];
      const int channel = first() + i % 4 + (i < 4 ? 0 : half);
      const bool own = rotates && first() < half && channel < rotary;
      const bool lower = channel < rotary / 2;  // of its plane
      const int other = lower ? channel + rotary / 2 : channel - rotary / 2;
      const float beside = before.gathered(own ? other : 0, half);
      if (own) {
        const float2 angle = angles[lower ? channel : other];
        x = x * angle.x + (lower ? -beside : beside) * direction * angle.y;
      }
    }
  }

  /// RoPE of neighbours: of the first `rotary` channels each even one and the next.
  __device__ void rotate_neighbours(const float2* angles, int half, int rotary, float direction) {
    if (first() < half) {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        float(&four)[4] = i < 4 ? low : high;
        const int channel = first() + i % 4 + (i < 4 ? 0 : half);
        if (channel < rotary) {
          const float2 angle = angles[channel / 2];
          rotate_plane(four[i % 4], four[i % 4 + 1], angle.x, direction * angle.y);
        }
      }
    }
  }
};

/// RoPE of a head, or back; values do not rotate, but their lanes go along.
template <int Width>
__device__ void rotate(Head<Width>& x, const TrainingHeads& h, const float2* angles,
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

/// Heads that a token's projection has in front of its keys.
__device__ int query_places(const TrainingHeads& h) {
  return h.output_gates ? 2 * h.heads : h.heads;
}
__device__ std::size_t projected_width(const TrainingHeads& h) {
  return static_cast<std::size_t>(query_places(h) + 2 * h.kv_heads) * h.head_dim;
}

__device__ Place place_of(const TrainingHeads& h, int index) {
  const int all = h.heads + 2 * h.kv_heads;
  const int column = index % all;
  Place place{static_cast<std::size_t>(index / all), column, column < h.heads,
              column >= h.heads + h.kv_heads, 0};
  const int before = place.is_query && h.output_gates ? 2 * column
                     : place.is_query                 ? column
                                                      : query_places(h) + column - h.heads;
  place.column = before * h.head_dim;
  if (place.is_value) {
    place.head -= h.heads + h.kv_heads;
  } else if (!place.is_query) {
    place.head -= h.heads;
  }
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
__device__ void load_raw(Head<Width>& x, const TrainingHeads& h, const Place& place,
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

/// The norm of a head: its weights, null where they are 1.
struct OwnNorm {
  const float* weight;
  float offset;

  __device__ OwnNorm(const TrainingHeads& h, const Place& place)
      : weight(place.is_query ? h.query_norm : h.key_norm), offset(h.norm_offset) {
    if (h.own_norms && weight != nullptr && !place.is_value) {
      weight += place.head * h.head_dim;
    }
  }
  __device__ float operator[](int channel) const {
    return weight != nullptr ? offset + weight[channel] : 1.0F;
  }
};

/// x, centred where the norm centers, and 1 / the root of its mean square.
template <int Width>
__device__ float center_and_measure(Head<Width>& x, const TrainingHeads& h) {
  const int half = h.head_dim / 2;
  const auto channels = static_cast<float>(h.head_dim);
  if (h.centers) {
    float sum = 0.0F;
    x.for_values(half, [&](float& v, int) { sum += v; });
    const float mean = lane_sum<Width>(sum) / channels;
    x.for_values(half, [&](float& v, int) { v -= mean; });
  }
  float squares = 0.0F;
  x.for_values(half, [&](float& v, int) { squares += v * v; });
  return inverse_rms(lane_sum<Width>(squares), channels, h.eps);
}

/// A token's angles.
__device__ const float2* angles_of(const TrainingHeads& h, std::size_t row) {
  return h.angles + row * static_cast<std::size_t>((h.rotary >= 0 ? h.rotary : h.head_dim) / 2);
}

/// The borrowed channel of a head, if it has one: read and cleared where a probe has its place.
template <int Width>
__device__ void take_channel(Head<Width>& x, const TrainingHeads& h,
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

/// Of values nothing is done, but their lanes go along.
template <int Width>
__device__ void norm_head(Head<Width>& x, const TrainingHeads& h, const Place& place) {
  if (!h.norms) {
    return;
  }
  Head<Width> normed = x;
  const float factor = center_and_measure(normed, h);
  const OwnNorm norm(h, place);
  if (!place.is_value) {
    x = normed;
    x.for_values(h.head_dim / 2, [&](float& v, int c) { v *= factor * norm[c]; });
  }
}

/// From the projection to what attention takes.
template <int Width>
__device__ void transform(Head<Width>& x, const TrainingHeads& h, const Place& place,
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
  const int count = h.rows * (h.heads + 2 * h.kv_heads);
  const int step = static_cast<int>(gridDim.x) * (kThreads / Width);
  const int first =
      static_cast<int>(blockIdx.x) * (kThreads / Width) + static_cast<int>(threadIdx.x) / Width;
  // All lanes of a warp go round equally often: they add up together.
  for (int base = 0; base < count; base += step) {
    const bool exists = base + first < count;
    const Place place = place_of(h, exists ? base + first : count - 1);
    const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
    const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
    Head<Width> x;
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
__device__ void norm_backward(Head<Width>& g, Head<Width>& x, const TrainingHeads& h,
                              const OwnNorm& norm) {
  const int half = h.head_dim / 2;
  const auto channels = static_cast<float>(h.head_dim);
  const float factor = center_and_measure(x, h);
  float product = 0.0F;
  float sum = 0.0F;
  g.for_pairs(x, half, [&](float& dy, float& v, int c) {
    product += dy * v * norm[c];
    sum += dy * norm[c];
  });
  const float along = lane_sum<Width>(product) * factor * factor / channels;
  const float mean = h.centers ? lane_sum<Width>(sum) / channels : 0.0F;
  g.for_pairs(x, half, [&](float& dy, float& v, int c) {
    const float dx = factor * (norm[c] * dy - mean - v * along);
    v *= dy * factor;
    dy = dx;
  });
}

/// What the norm took, once more.
template <int Width>
__device__ void load_norm_input(Head<Width>& x, const TrainingHeads& h, const Place& place,
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
  Head<Width> query;
  Head<Width> key;

  /// `x`: of one head. All heads of a kind share their weights, or the gradients have a row for
  /// each.
  __device__ void add(Head<Width>& x, const TrainingHeads& h, const TrainingHeadsGradients& d,
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

/// g through the norm of its head, for all lanes of a warp or for none; what becomes of values is
/// dropped.
template <int Width>
__device__ void through_norm(Head<Width>& g, const TrainingHeads& h,
                             const TrainingHeadsGradients& d, const Place& place,
                             const BorrowedChannel& borrowed, int channel, bool exists,
                             NormSums<Width>& sums) {
  if (!h.norms) {
    return;
  }
  Head<Width> x;
  load_norm_input(x, h, place, borrowed, channel);
  Head<Width> through = g;
  norm_backward(through, x, h, OwnNorm(h, place));
  if (!place.is_value) {
    g = through;
    if (exists) {
      sums.add(x, h, d, place);
    }
  }
}

/// *sum += what the lanes of a block have for each channel.
template <int Width>
__device__ void add_to(float* sum, Head<Width>& x, int half, float (&memory)[kMostDim]) {
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
  const int count = h.rows * (h.heads + 2 * h.kv_heads);
  const int step = static_cast<int>(gridDim.x) * (kThreads / Width);
  const int first =
      static_cast<int>(blockIdx.x) * (kThreads / Width) + static_cast<int>(threadIdx.x) / Width;
  for (int base = 0; base < count; base += step) {
    const bool exists = base + first < count;
    const Place place = place_of(h, exists ? base + first : count - 1);
    const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
    const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
    const int heads = place.is_query ? h.heads : h.kv_heads;
    const bf16* from = place.is_query ? d.queries : place.is_value ? d.values : d.keys;
    Head<Width> g;
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
  if constexpr (Width == kLanes) {
    body(std::integral_constant<int, kLanes>());
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
  const int per_block = kThreads / width;
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
