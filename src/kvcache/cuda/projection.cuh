// What a Projection makes of a token's products.
#pragma once

#include "base/random.h"
#include "kvcache/cuda/projection.h"
#include "ops/cuda/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// The sum of x over a block's threads, in each of them.
inline __device__ float sum_over_block(float x) {
  __shared__ float sums[32];
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  __syncthreads();  // the sums of an earlier call have been read
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

/// The probe's x for one token.
inline __device__ float probe(const DecisionSource& source, int token, int output) {
  const float* hidden = source.hidden + static_cast<std::size_t>(token) * source.width;
  const float* weight = source.projection + static_cast<std::size_t>(output) * source.width;
  float squares = 0.0F;
  float product = 0.0F;
  for (int i = threadIdx.x; i < source.width; i += blockDim.x) {
    squares += hidden[i] * hidden[i];
    product += hidden[i] * source.norm[i] * weight[i];
  }
  squares = sum_over_block(squares);
  product = sum_over_block(product);
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

/// What makes a query or a key of a token's products, in a warp's registers: so it can be on its
/// way before they are there.
template <int D>
class HeadProjection {
 public:
  /// norm: the projection's query_norm or key_norm.
  __device__ HeadProjection(const Projection& projection, const float* norm, int token)
      : projection_(projection),
        normed_(norm != nullptr),
        angles_(projection.angles + static_cast<std::size_t>(token) * (D / 2)) {
    if (normed_) {
      weight_.load(norm, nullptr);
    }
  }

  /// Head `column` of q, k and v, whose products are `from`: with bias and norm.
  template <class T>
  __device__ void read(const T* from, int column, ops::cuda::HeadVector<D>& vector) const {
    load(projection_, from, column, vector);
    if (normed_) {
      vector.norm(weight_, projection_.eps);
    }
  }

  /// The same as attention takes it. `borrowed`: a decision was read from it.
  template <class T>
  __device__ void take(const T* from, int column, bool borrowed,
                       ops::cuda::HeadVector<D>& vector) const {
    const DecisionSource& source = projection_.decision;
    read(from, column, vector);
    if (borrowed) {
      vector.clear(source.channel);
    }
    vector.turn(angles_);
    if (borrowed && source.clear_after_rope) {
      vector.clear(source.channel);
    }
  }

  /// Products with their bias, if any; all that a value needs.
  template <class T>
  static __device__ void load(const Projection& projection, const T* from, int column,
                              ops::cuda::HeadVector<D>& vector) {
    vector.load(from, projection.bias != nullptr ? projection.bias + column * D : nullptr);
  }

 private:
  const Projection& projection_;
  bool normed_;
  typename ops::cuda::HeadVector<D>::Angles angles_;
  ops::cuda::HeadVector<D> weight_;
};

/// Whether a decision is read from a group's query `index`, or from its key.
inline __device__ bool borrows_query(const DecisionSource& source, int index) {
  using Kind = DecisionSource::Kind;
  return index == 0 && (source.kind == Kind::channel || source.kind == Kind::merge);
}
inline __device__ bool borrows_key(const DecisionSource& source) {
  return source.kind == DecisionSource::Kind::merge;
}

/// The KV head that decides for `head`.
inline __device__ int deciding_head(const DecisionSource& source, int head) {
  return source.per_layer ? 0 : head;
}

/// A decision for which the token's products are not needed, and DMC's weight of the token, if
/// asked for: by the block's first thread. False if they are needed.
inline __device__ bool decide_beforehand(const DecisionSource& source, int position, int layer,
                                         int head, bool& decision, float* omega) {
  if (!source.drawn && source.kind != DecisionSource::Kind::none) {
    return false;
  }
  if (threadIdx.x == 0) {
    decision = source.drawn && draw(source, position, layer, head);
    if (omega != nullptr) {
      *omega = 1.0F;
    }
  }
  return true;
}

/// Any other decision about KV head `head`, and DMC's weight: in shared memory when all of the
/// block's threads have met. query, key: products of the deciding head's first query and of its
/// key.
template <int D, class T>
__device__ void decide(const Projection& projection, const T* query, const T* key, int token,
                       int position, int head, bool& decision, float* omega) {
  using Kind = DecisionSource::Kind;
  const DecisionSource& source = projection.decision;
  const int warp = threadIdx.x / 32;
  const int deciding = deciding_head(source, head);
  const bool first = threadIdx.x == 0;
  if (source.kind == Kind::probe) {
    const float x = probe(source, token, deciding);
    if (first) {
      decision = source.scale * x - source.offset > 0.0F;
    }
  } else if (warp == 0) {
    ops::cuda::HeadVector<D> vector;
    HeadProjection<D>(projection, projection.query_norm, token)
        .read(query, deciding * projection.group, vector);
    const float x = vector.channel(source.channel);
    if (first && source.kind == Kind::channel) {
      decision = source.scale * x - source.offset > 0.0F;
    } else if (first && omega != nullptr) {
      *omega = 1.0F / (1.0F + expf(-x));
    }
  } else if (source.kind == Kind::merge && warp + 1 == blockDim.x / 32) {
    ops::cuda::HeadVector<D> vector;
    HeadProjection<D>(projection, projection.key_norm, token)
        .read(key, projection.kv_heads * projection.group + deciding, vector);
    const float x = vector.channel(source.channel);
    if (threadIdx.x % 32 == 0) {
      decision = source.pooled > 0 ? position % source.pooled != 0 : x - source.offset > 0.0F;
    }
  }
}

/// Takes KV head `head` of token `token`, whose products are `qkv`, with a block of group + 2
/// warps. Those of the group end with their query in `vector`, the last two with key and value.
/// Returns the decision to all threads; `omega`, if given, is set to DMC's weight of the token (in
/// shared memory, for all of them).
template <int D, class T>
__device__ bool project(const Projection& projection, const T* qkv, int token, int position,
                        int layer, int head, ops::cuda::HeadVector<D>& vector,
                        float* omega = nullptr) {
  const DecisionSource& source = projection.decision;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int heads = projection.kv_heads * group;
  const int deciding = deciding_head(source, head);
  __shared__ bool decision;
  if (!decide_beforehand(source, position, layer, head, decision, omega)) {
    decide<D>(projection, qkv + deciding * group * D, qkv + (heads + deciding) * D, token, position,
              head, decision, omega);
  }
  const int column =
      warp < group ? head * group + warp : heads + (warp - group) * projection.kv_heads + head;
  const T* products = qkv + column * D;
  if (warp < group) {
    HeadProjection<D>(projection, projection.query_norm, token)
        .take(products, column, borrows_query(source, warp), vector);
  } else if (warp == group) {
    HeadProjection<D>(projection, projection.key_norm, token)
        .take(products, column, borrows_key(source), vector);
  } else {
    HeadProjection<D>::load(projection, products, column, vector);
  }
  __syncthreads();
  return decision;
}

}  // namespace winnow::kvcache::cuda
