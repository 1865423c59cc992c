// One token and one KV head of a Projection, handled by a block of query_warps() + 2 warps: the
// query heads, the key, the value.
#pragma once

#include "kvcache/cuda/append/projection.h"
#include "kvcache/cuda/append/step.h"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// The sum of x over a block's threads, returned to each of them.
inline __device__ float sum_over_block(float x) {
  __shared__ float sums[32];
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  __syncthreads();  // all threads have read the sums of an earlier call
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = x;
  }
  __syncthreads();
  float total = 0.0F;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) {
    total += sums[warp];
  }
  return total;
}

/// x of a probe (DecisionSource) for one token.
inline __device__ float probe(const DecisionSource& source, int token, int output) {
  const float* hidden = source.hidden + static_cast<std::size_t>(token) * source.width;
  const float* weight = source.projection + static_cast<std::size_t>(output) * source.width;
  float squares = 0.0F;
  float product = 0.0F;
  for (int i = threadIdx.x; i < source.width; i += blockDim.x) {
    squares += hidden[i] * hidden[i];
    product += hidden[i] * (source.norm != nullptr ? source.norm[i] : 1.0F) * weight[i];
  }
  squares = sum_over_block(squares);
  product = sum_over_block(product);
  const float mean = squares / static_cast<float>(source.width);
  return product * (source.norm != nullptr ? rsqrtf(mean + source.eps) : 1.0F) +
         (source.bias != nullptr ? source.bias[output] : 0.0F);
}

/// A token's row of a chunk's q, k, v products.
class QkvRow {
 public:
  __device__ QkvRow(const QkvRows& rows, std::size_t first) : rows_(rows), first_(first) {}

  __device__ float operator[](int i) const {
    return rows_.exact != nullptr ? rows_.exact[first_ + i] : to_float(rows_.rounded[first_ + i]);
  }
  __device__ QkvRow operator+(int i) const { return {rows_, first_ + i}; }

 private:
  QkvRows rows_;
  std::size_t first_;
};

/// The number of channels of a head in the layer's q, k, v products.
template <int D>
__device__ ops::cuda::HeadDim<D> width_of(const Projection& projection, ops::cuda::HeadDim<D> dim) {
  return D > 0 || projection.head_dim == 0 ? dim : ops::cuda::HeadDim<D>(projection.head_dim);
}

/// Where a token's row begins in the layer's products.
template <int D>
__device__ std::size_t row_of(const Projection& projection, int token, ops::cuda::HeadDim<D> dim) {
  return static_cast<std::size_t>(token) * projection.columns() * width_of(projection, dim);
}

/// Applies RoPE. Kernels that are built for a head dimension take plain projections only.
template <int D>
__device__ void rotate(const Projection& projection, int token, ops::cuda::HeadVector<D>& vector) {
  const int rotary = D > 0 || projection.rotary < 0 ? int{vector.dim()} : projection.rotary;
  const int planes = D > 0 || projection.angle_planes == 0 ? rotary / 2 : projection.angle_planes;
  const float2* angles = projection.angles + static_cast<std::size_t>(token) * planes;
  if (D > 0 || (projection.rotary < 0 && !projection.interleaved)) {
    vector.apply_rope(angles);
  } else if (projection.interleaved) {
    vector.rotate_pairs(angles, rotary);
  } else if (rotary > 0) {
    vector.rotate_first(angles, rotary);
  }
}

/// Scales a query by its growth.
template <int D>
__device__ void grow(const QueryGrowth& q, int position, ops::cuda::HeadVector<D>& vector) {
  if (q.growth != 0.0F) {
    vector.scale(1.0F +
                 q.growth * logf(1.0F + static_cast<float>((position + q.first) / q.period)));
  }
}

/// Computes KV head `head` of token `token` from its products `qkv`. Each query warp ends with its
/// query in `vector`; the last two warps, if there are any, end with the key and the value.
/// `vector` has the projection's width. Returns the decision to all threads.
/// `omega`, if given, is set to DMC's weight of the token. It is in shared memory, for all
/// threads.
template <int D, class Row>
__device__ Decision project(const Projection& projection, const Row& qkv, int token, int position,
                            int layer, int head, ops::cuda::HeadVector<D>& vector,
                            float* omega = nullptr) {
  using Kind = DecisionSource::Kind;
  const ops::cuda::HeadDim<D> width = width_of(projection, vector.dim());
  const DecisionSource& source = projection.decision;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int queries = projection.query_warps();
  const int heads = projection.kv_heads * group;
  const auto load = [&](ops::cuda::HeadVector<D>& into, int column) {
    into.load(qkv + column * width,
              projection.bias != nullptr ? projection.bias + column * width : nullptr);
  };
  // The norm of a query head (column < `heads`) or of a key head (the columns after them).
  const auto norm_of = [&](int column) {
    const bool query = column < heads;
    const float* weight = query ? projection.query_norm : projection.key_norm;
    const int own = D == 0 && projection.own_norms ? (query ? column : column - heads) : 0;
    return ops::cuda::HeadNorm{weight != nullptr, weight + own * width, projection.eps,
                               D == 0 && projection.norms_center};
  };
  const bool norms_late = D == 0 && projection.norms_after_rope;
  const auto first_norm_of = [&](int column) {
    return norms_late ? ops::cuda::HeadNorm{} : norm_of(column);
  };
  __shared__ Decision decision;
  const int deciding = source.per_layer ? 0 : head;
  const auto decide = [&](float x) {
    if (threadIdx.x == 0) {
      decision = {source.decides(x), source.logit(x)};
    }
  };
  const bool merges = source.kind == Kind::merge;
  if (source.is_drawn || source.kind == Kind::none) {
    if (threadIdx.x == 0) {
      const float logit = source.is_drawn ? source.drawn.logit(position, layer, head) : 0.0F;
      decision = {logit > 0.0F, logit};
      if (omega != nullptr) {
        *omega = 1.0F;
      }
    }
  } else if (merges) {
    // The key and the first query are read below, after they are loaded.
  } else if (source.kind == Kind::probe) {
    decide(probe(source, token, deciding));
  } else if (warp == 0) {
    load(vector, deciding * group);
    decide(ops::cuda::decision_channel(vector, first_norm_of(deciding * group), source.channel));
  }
  const bool takes_key = D == 0 && projection.values_are_keys;
  const int column = warp < queries                 ? head * group + warp
                     : warp == queries || takes_key ? heads + head
                                                    : heads + projection.kv_heads + head;
  load(vector, column);
  if (D == 0 && warp > queries) {
    ops::cuda::apply_norm(vector, ops::cuda::HeadNorm{projection.value_norm != nullptr,
                                                      projection.value_norm, projection.eps});
  }
  if (warp <= queries) {  // a query or the key
    const bool borrowed =
        (source.kind == Kind::channel && warp == 0) || (merges && (warp == 0 || warp == queries));
    const auto merge_decision = [&](const ops::cuda::HeadVector<D>& normed) {
      if (merges && borrowed && !source.is_drawn) {
        ops::cuda::HeadVector<D> read = normed;
        if (deciding != head) {
          const int other = warp < queries ? deciding * group : heads + deciding;
          load(read, other);
          ops::cuda::apply_norm(read, first_norm_of(other));
        }
        const float x = read.channel(source.channel);
        if (threadIdx.x % 32 == 0 && warp == queries) {
          decision.taken =
              source.pooled > 0 ? position % source.pooled != 0 : x - source.offset > 0.0F;
        } else if (threadIdx.x == 0 && omega != nullptr) {
          *omega = 1.0F / (1.0F + expf(-x));
        }
      }
    };
    const auto turn = [&](auto& x) {
      rotate(projection, token, x);
      if (norms_late) {
        ops::cuda::apply_norm(x, norm_of(column));
      }
    };
    ops::cuda::transform_head(vector, first_norm_of(column), turn,
                              ops::cuda::ClearedChannel{borrowed, source, merge_decision});
    if (warp < queries) {
      grow(projection.query_growth, position, vector);
    }
  }
  __syncthreads();
  return decision;
}

}  // namespace winnow::kvcache::cuda
