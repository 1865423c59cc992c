// The assignment of heads to lanes, and the single steps of their transform.
#pragma once

#include "ops/cuda/training/training_head_lanes.cuh"
#include "ops/cuda/training/training_heads.h"

namespace winnow::ops::cuda {

/// RoPE of a head, or back; values do not rotate, but their lanes must take part.
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

/// The head and the token of a group of lanes.
struct Place {
  std::size_t row;
  int head;  // among those of its kind
  bool is_query;
  bool is_value;
  int column;  // of its first channel in the projection
};

/// The number of heads before the keys in a token's projection, and the number of all.
inline __device__ int query_places(const TrainingHeads& h) {
  return h.output_gates ? 2 * h.heads : h.heads;
}
inline __device__ int key_places(const TrainingHeads& h) {
  return h.values_are_keys ? h.kv_heads : 2 * h.kv_heads;
}
inline __device__ std::size_t projected_width(const TrainingHeads& h) {
  return static_cast<std::size_t>(query_places(h) + key_places(h)) * h.head_dim;
}

/// `all`: heads per token that are processed.
inline __device__ Place place_of(const TrainingHeads& h, int index, int all) {
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
inline __device__ int borrowed_channel(const BorrowedChannel& borrowed, int head) {
  return borrowed.channel >= 0 && head % borrowed.every == 0 ? borrowed.channel : -1;
}

inline __device__ float probed(const BorrowedChannel& borrowed, const Place& place) {
  const int probe = place.head / borrowed.every;
  return probe < borrowed.probes ? borrowed.probe[place.row * borrowed.stride + probe] : 0.0F;
}

/// Adds the bias and composes the borrowed channel: the input of the norm.
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
inline __device__ bool is_normed(const TrainingHeads& h, const Place& place) {
  return place.is_value ? h.value_norm : h.norms;
}
inline __device__ bool norms_any(const TrainingHeads& h) {
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

/// x, centred if the norm centers, and 1 / its root mean square. By all lanes of the warp.
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
inline __device__ const float2* angles_of(const TrainingHeads& h, std::size_t row) {
  const int turning = (h.rotary >= 0 ? h.rotary : h.head_dim) / 2;
  return h.angles + row * static_cast<std::size_t>(h.angle_stride > 0 ? h.angle_stride : turning);
}

/// The borrowed channel of a head, if it has one: read, and cleared if a probe replaces it.
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

/// Heads that are not normed do not change, but their lanes must take part.
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

}  // namespace winnow::ops::cuda
