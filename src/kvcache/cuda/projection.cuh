// One token and one KV head of a Projection, taken by some warps of a block: its vectors are the
// group's query heads, the key and the value.
#pragma once

#include "base/random.h"
#include "kvcache/cuda/projection.h"
#include "ops/cuda/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// A team is the threads that work together: threads() of them in whole warps, thread() of them
/// this one, sync() lets none go on before all have come.
struct WholeBlock {
  static __device__ int threads() { return static_cast<int>(blockDim.x); }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ void sync() { __syncthreads(); }
};

/// The sum of x over a team's threads, in each of them.
template <class Team>
__device__ float sum_over_team(float x) {
  __shared__ float sums[32];
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  Team::sync();  // the sums of an earlier call have been read
  if (Team::thread() % 32 == 0) {
    sums[Team::thread() / 32] = x;
  }
  Team::sync();
  float total = 0.0F;
  for (int warp = 0; warp < Team::threads() / 32; ++warp) {
    total += sums[warp];
  }
  return total;
}

/// The probe's x for one token.
template <class Team>
__device__ float probe(const DecisionSource& source, int token, int output) {
  const float* hidden = source.hidden + static_cast<std::size_t>(token) * source.width;
  const float* weight = source.projection + static_cast<std::size_t>(output) * source.width;
  float squares = 0.0F;
  float product = 0.0F;
  for (int i = Team::thread(); i < source.width; i += Team::threads()) {
    squares += hidden[i] * hidden[i];
    product += hidden[i] * source.norm[i] * weight[i];
  }
  squares = sum_over_team<Team>(squares);
  product = sum_over_team<Team>(product);
  return product * rsqrtf(squares / static_cast<float>(source.width) + source.eps) +
         (source.bias != nullptr ? source.bias[output] : 0.0F);
}

/// The coin flip of model::Model::draw_decisions.
inline __device__ bool draw(const DecisionSource& source, int position, int layer, int head) {
  Random random(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(layer));
  double x = 0.0;
  for (int h = 0; h <= head; ++h) {
    x = random.uniform();
  }
  return x < source.rate;
}

/// Vector v < group of a KV head: a query; then the key, the value.
template <int D, class T>
__device__ void load_vector(const Projection& projection, const T* qkv, int head, int v,
                            ops::cuda::HeadVector<D>& vector) {
  const int group = projection.group;
  const int heads = projection.kv_heads * group;
  const int column =
      v < group ? head * group + v : heads + (v - group) * projection.kv_heads + head;
  vector.load(qkv + column * D,
              projection.bias != nullptr ? projection.bias + column * D : nullptr);
}

/// The decision on KV head `head` of token `token`, whose products are `qkv`, in all threads.
/// `drawn`: what draw() says, if that counts; needed by the team's first thread.
template <int D, class Team, class T>
__device__ bool decide(const Projection& projection, const T* qkv, int token, int head,
                       bool drawn) {
  using Kind = DecisionSource::Kind;
  const DecisionSource& source = projection.decision;
  __shared__ bool decision;
  const int deciding = source.per_layer ? 0 : head;
  const auto evicts = [&](float x) { return source.scale * x - source.offset > 0.0F; };
  if (source.drawn || source.kind == Kind::none) {
    if (Team::thread() == 0) {
      decision = source.drawn && drawn;
    }
  } else if (source.kind == Kind::probe) {
    const float x = probe<Team>(source, token, deciding);
    if (Team::thread() == 0) {
      decision = evicts(x);
    }
  } else if (Team::thread() < 32) {
    ops::cuda::HeadVector<D> vector;
    load_vector(projection, qkv, deciding, 0, vector);
    if (projection.query_norm != nullptr) {
      vector.norm(projection.query_norm, projection.eps);
    }
    const float x = vector.channel(source.channel);
    if (Team::thread() == 0) {
      decision = evicts(x);
    }
  }
  Team::sync();
  return decision;
}

/// Turns a vector that was loaded into what attention and cache get, by a warp. `angles`: those of
/// its token that the lane needs.
template <int D>
__device__ void project(const Projection& projection,
                        const typename ops::cuda::HeadVector<D>::Angles& angles, int v,
                        ops::cuda::HeadVector<D>& vector) {
  const DecisionSource& source = projection.decision;
  const int group = projection.group;
  if (v > group) {
    return;
  }
  const float* weight = v < group ? projection.query_norm : projection.key_norm;
  if (weight != nullptr) {
    vector.norm(weight, projection.eps);
  }
  const bool borrowed = source.kind == DecisionSource::Kind::channel && v == 0;
  if (borrowed) {
    vector.clear(source.channel);
  }
  vector.turn(angles);
  if (borrowed && source.clear_after_rope) {
    vector.clear(source.channel);
  }
}

}  // namespace winnow::kvcache::cuda
