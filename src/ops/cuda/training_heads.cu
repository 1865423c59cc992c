#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/training_heads.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostDim = 256;

__device__ __nv_bfloat162 load_two(const bf16* from) {
  return *reinterpret_cast<const __nv_bfloat162*>(from);
}

__device__ void store_two(bf16* to, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}

// One head of one token, shared by `Width` neighbouring lanes: piece p of lane l are the channels
// 2 (l + p Width) and the next of the lower half, and their partners of the upper half.
template <int Width>
struct Head {
  static constexpr int kPieces = kMostDim / 4 / Width;

  float low[kPieces][2];
  float high[kPieces][2];

  /// body(piece, channel of low[piece][0]).
  template <class Body>
  __device__ static void for_pieces(int half, const Body& body) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int channel = 2 * (static_cast<int>(threadIdx.x) % Width + piece * Width);
      if (channel < half) {
        body(piece, channel);
      }
    }
  }

  /// body(x, channel) for every value of this lane.
  template <class Body>
  __device__ void for_values(int half, const Body& body) {
    for_pieces(half, [&](int piece, int channel) {
      body(low[piece][0], channel);
      body(low[piece][1], channel + 1);
      body(high[piece][0], channel + half);
      body(high[piece][1], channel + 1 + half);
    });
  }

  __device__ void load(const bf16* from, int half) {
    for_pieces(half, [&](int piece, int channel) {
      const float2 a = __bfloat1622float2(load_two(from + channel));
      const float2 b = __bfloat1622float2(load_two(from + half + channel));
      low[piece][0] = a.x;
      low[piece][1] = a.y;
      high[piece][0] = b.x;
      high[piece][1] = b.y;
    });
  }

  __device__ void store(bf16* to, int half) {
    for_pieces(half, [&](int piece, int channel) {
      store_two(to + channel, low[piece][0], low[piece][1]);
      store_two(to + half + channel, high[piece][0], high[piece][1]);
    });
  }

  /// Turns each plane by its angle, or back.
  __device__ void turn(const float2* angles, int half, float direction) {
    for_pieces(half, [&](int piece, int channel) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 angle = angles[channel + i];
        const float sine = direction * angle.y;
        const float a = low[piece][i];
        const float b = high[piece][i];
        low[piece][i] = a * angle.x - b * sine;
        high[piece][i] = b * angle.x + a * sine;
      }
    });
  }
};

/// Which head of which token a group of lanes has.
struct Place {
  std::size_t row;
  int head;         // among those of its kind
  bool is_query;
  bool is_value;
  std::size_t column;  // of its first channel in the projection
};

__device__ Place place_of(const TrainingHeads& h, std::size_t index) {
  const int all = h.heads + 2 * h.kv_heads;
  const auto column = static_cast<int>(index % all);
  Place place{index / all, column, column < h.heads, column >= h.heads + h.kv_heads,
              static_cast<std::size_t>(column) * h.head_dim};
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
  const std::size_t width = std::size_t(h.heads + 2 * h.kv_heads) * h.head_dim;
  x.load(h.projected + place.row * width + place.column, half);
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

template <int Width>
__device__ float norm_factor(Head<Width>& x, int head_dim, float eps) {
  float squares = 0.0F;
  x.for_values(head_dim / 2, [&](float& v, int) { squares += v * v; });
  return rsqrtf(lane_sum<Width>(squares) / static_cast<float>(head_dim) + eps);
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
    split_kernel(const __grid_constant__ TrainingHeads h, bf16* queries, bf16* keys, bf16* values,
                 float* query_read, float* key_read) {
  const int half = h.head_dim / 2;
  const std::size_t count = std::size_t(h.rows) * (h.heads + 2 * h.kv_heads);
  const std::size_t step = std::size_t{gridDim.x} * (kThreads / Width);
  const std::size_t first = std::size_t{blockIdx.x} * (kThreads / Width) + threadIdx.x / Width;
  // All lanes of a warp go round equally often: they add up together.
  for (std::size_t base = 0; base < count; base += step) {
    const bool exists = base + first < count;
    const Place place = place_of(h, exists ? base + first : count - 1);
    const BorrowedChannel& borrowed = place.is_query ? h.query : h.key;
    const int channel = place.is_value ? -1 : borrowed_channel(borrowed, place.head);
    Head<Width> x;
    load_raw(x, h, place, borrowed, channel);
    const float* norm = place.is_query ? h.query_norm : h.key_norm;
    const float factor = norm != nullptr ? norm_factor(x, h.head_dim, h.eps) : 1.0F;
    if (!place.is_value && norm != nullptr) {
      x.for_values(half, [&](float& v, int c) { v *= factor * norm[c]; });
    }
    float* read = place.is_query ? query_read : key_read;
    if (channel >= 0 && borrowed.probe != nullptr) {
      x.for_values(half, [&](float& v, int c) {
        if (c == channel) {
          if (read != nullptr && exists) {
            read[place.row * h.kv_heads + place.head / borrowed.every] = v;
          }
          v = 0.0F;
        }
      });
    }
    if (!place.is_value) {
      x.turn(h.angles + place.row * half, half, 1.0F);
    }
    if (channel >= 0 && h.clear_after_rope) {
      x.for_values(half, [&](float& v, int c) { v *= c == channel ? *h.factor : 1.0F; });
    }
    if (exists) {
      bf16* to = place.is_query ? queries : place.is_value ? values : keys;
      const int heads = place.is_query ? h.heads : h.kv_heads;
      x.store(to + (place.row * heads + place.head) * h.head_dim, half);
    }
  }
}

/// Through q- or k-norm: dx_i = r (w_i g_i - x_i r^2 / D sum_j x_j w_j g_j); adds to dweight [D] in
/// shared memory.
template <int Width>
__device__ void norm_backward(Head<Width>& g, Head<Width>& x, const TrainingHeads& h,
                              const float* norm, float* dweight, bool counts) {
  using Pieces = Head<Width>;
  const int half = h.head_dim / 2;
  const float factor = norm_factor(x, h.head_dim, h.eps);
  float product = 0.0F;
  const auto both = [&](const auto& body) {
    Pieces::for_pieces(half, [&](int piece, int c) {
      body(g.low[piece][0], x.low[piece][0], c);
      body(g.low[piece][1], x.low[piece][1], c + 1);
      body(g.high[piece][0], x.high[piece][0], c + half);
      body(g.high[piece][1], x.high[piece][1], c + 1 + half);
    });
  };
  both([&](float& dy, float& v, int c) { product += dy * v * norm[c]; });
  const float along =
      lane_sum<Width>(product) * factor * factor / static_cast<float>(h.head_dim);
  both([&](float& dy, float& v, int c) {
    if (counts) {
      atomicAdd(dweight + c, dy * v * factor);
    }
    dy = factor * (norm[c] * dy - v * along);
  });
}

template <int Width>
__global__ void __launch_bounds__(kThreads)
    split_backward_kernel(const __grid_constant__ TrainingHeads h,
                          const __grid_constant__ TrainingHeadsGradients d) {
  __shared__ float dnorms[2][kMostDim];
  for (int i = threadIdx.x; i < 2 * kMostDim; i += kThreads) {
    dnorms[i / kMostDim][i % kMostDim] = 0.0F;
  }
  __syncthreads();
  const int half = h.head_dim / 2;
  const std::size_t width = std::size_t(h.heads + 2 * h.kv_heads) * h.head_dim;
  const std::size_t count = std::size_t(h.rows) * (h.heads + 2 * h.kv_heads);
  const std::size_t step = std::size_t{gridDim.x} * (kThreads / Width);
  const std::size_t first = std::size_t{blockIdx.x} * (kThreads / Width) + threadIdx.x / Width;
  for (std::size_t base = 0; base < count; base += step) {
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
    if (!place.is_value) {
      g.turn(h.angles + place.row * half, half, -1.0F);
    }
    const bool carries = channel >= 0 && borrowed.probe != nullptr;
    if (carries) {
      const float* dread = place.is_query ? d.query_read : d.key_read;
      const float value = dread[place.row * h.kv_heads + place.head / borrowed.every];
      g.for_values(half, [&](float& v, int c) { v = c == channel ? value : v; });
    }
    const float* norm = place.is_query ? h.query_norm : h.key_norm;
    if (norm != nullptr) {  // the same for all lanes of a warp but for values, whose sums are lost
      Head<Width> x;
      load_raw(x, h, place, borrowed, channel);
      Head<Width> through = g;
      norm_backward(through, x, h, norm, dnorms[place.is_query ? 0 : 1],
                    exists && !place.is_value);
      if (!place.is_value) {
        g = through;
      }
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
  __syncthreads();
  for (int i = threadIdx.x; i < h.head_dim; i += kThreads) {
    if (d.query_norm != nullptr) {
      atomicAdd(d.query_norm + i, dnorms[0][i]);
    }
    if (d.key_norm != nullptr) {
      atomicAdd(d.key_norm + i, dnorms[1][i]);
    }
  }
}

/// body(std::integral_constant<int, Width>): as many lanes as have something to do, a power of two.
template <class Body>
void with_width(int head_dim, const Body& body) {
  if (head_dim >= 128) {
    body(std::integral_constant<int, 32>());
  } else if (head_dim >= 64) {
    body(std::integral_constant<int, 16>());
  } else {
    body(std::integral_constant<int, 8>());
  }
}

int blocks_of(const TrainingHeads& h, int width) {
  constexpr int kBlocksPerProcessor = 8;
  static const int processors = winnow::cuda::multiprocessor_count();
  const std::size_t heads = std::size_t(h.rows) * (h.heads + 2 * h.kv_heads);
  const std::size_t per_block = kThreads / width;
  return static_cast<int>(std::min<std::size_t>((heads + per_block - 1) / per_block,
                                                kBlocksPerProcessor * processors));
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
